"""Tensors of PyTorch whose memory is not their elements: each is refused, with what to pass.

A kernel would read wrong values of them, or none. Whatever else has `data_ptr()` is let through.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from tilewright.errors import LaunchError
from tilewright.interpreter import FIRST_PAGE_BYTES

__all__ = ["address_of", "require_elements"]


class _TensorKind(NamedTuple):
    """What is said of a kind of tensors that a kernel cannot take, and what to pass instead."""

    holds: Callable[[Any], bool]
    words: str
    hint: str


def require_elements(tensor: Any, name: str) -> None:
    """Raise `LaunchError` for a tensor whose memory is something else than its elements."""
    for kind in _KINDS:
        if kind.holds(tensor):
            raise LaunchError(f"`{name}`: {kind.words}", hint=kind.hint)


def address_of(tensor: Any, name: str) -> int:
    """Return where the elements of a tensor are; raise `LaunchError` if they are nowhere."""
    try:
        address = int(tensor.data_ptr())
    except RuntimeError as error:
        raise _without_memory(tensor, name) from error
    # Elements behind the first of a storage without memory seem to be at a small address.
    if address < FIRST_PAGE_BYTES and hasattr(tensor, "numel") and tensor.numel():
        raise _without_memory(tensor, name)
    return address


def _without_memory(tensor: Any, name: str) -> LaunchError:
    kind = type(tensor).__name__
    if kind in {"Tensor", "Parameter"}:
        return LaunchError(
            f"`{name}`: the tensor has {tensor.numel()} elements, but its memory was given back",
            hint="fill its storage again before the launch: `tensor.untyped_storage().resize_(n)`",
        )
    return LaunchError(
        f"`{name}`: a {kind} has no memory of its own",
        hint="pass the tensors that it is made of, as `.to_local()` of a distributed one",
    )


def _says(attribute: str) -> Callable[[Any], bool]:
    """Whether a tensor says so itself, by an attribute or by a method."""

    def holds(tensor: Any) -> bool:
        found = getattr(tensor, attribute, False)
        return bool(found() if callable(found) else found)

    return holds


def _is_fake(tensor: Any) -> bool:
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
    return fake is not None and isinstance(tensor, fake)


def _is_wrapped(tensor: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    with contextlib.suppress(AttributeError, TypeError):
        return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))  # noqa: SLF001
    return False


def _is_sparse(tensor: Any) -> bool:
    return "sparse" in str(getattr(tensor, "layout", ""))


def _is_of_mkldnn(tensor: Any) -> bool:
    return "mkldnn" in str(getattr(tensor, "layout", ""))


_KINDS = (
    _TensorKind(
        _is_wrapped,
        "the tensor stands for others within `torch.func` (vmap, grad, functionalize)",
        "make an operator of the launch: `torch.library.custom_op`, with `register_vmap` or "
        "`register_autograd`",
    ),
    _TensorKind(
        _is_fake,
        "a fake tensor has a shape, but no memory",
        "pass a real one, or make an operator of the launch: `torch.library.triton_op`, or "
        "`custom_op` with `register_fake`",
    ),
    _TensorKind(
        _says("is_meta"),
        "a tensor on the meta device has a shape, but no memory",
        "pass one that has: `torch.empty_like(tensor, device='cuda')`",
    ),
    _TensorKind(
        _says("is_nested"),
        "a nested tensor is several in one memory",
        "pass `.values()` and `.offsets()`, or `.to_padded_tensor(0)`",
    ),
    _TensorKind(
        _is_sparse,
        "a sparse tensor has no single memory",
        "pass `.to_dense()`, or its indices and values apart",
    ),
    _TensorKind(
        _is_of_mkldnn,
        "the tensor is laid out as mkldnn wants it",
        "pass `.to_dense()`",
    ),
    _TensorKind(
        _says("is_quantized"),
        "a quantized tensor is more than its integers",
        "pass `.int_repr()`, the scale and the zero point apart, or `.dequantize()`",
    ),
    _TensorKind(
        _says("is_conj"),
        "the tensor is conjugated lazily: its memory has the opposite imaginary parts",
        "pass `torch.view_as_real(tensor.resolve_conj())`",
    ),
    _TensorKind(
        _says("is_neg"),
        "the tensor is negated lazily: its memory has the opposite signs",
        "pass `tensor.resolve_neg()`, which is a copy: what the kernel writes is in there",
    ),
    _TensorKind(
        _says("_is_zerotensor"),
        "the tensor is all zeros, without memory",
        "pass `tensor.clone()`",
    ),
)

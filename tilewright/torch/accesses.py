"""Which arguments a user's kernel in a compiled function writes to: by our analysis of its IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.errors import CompileTimeAssertionFailure, Unsupported
from tilewright.runtime.arguments import Specialization, specialize
from tilewright.runtime.autotune import Autotuner
from tilewright.runtime.build import effects, tile_ir
from tilewright.runtime.heuristics import Heuristics
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.request import Request
from tilewright.runtime.tensor_descriptor import TensorDescriptor
from tilewright.runtime.wrappers import MockTensor

__all__ = ["written_arguments"]

# Stands for a size that is not known yet: neither 1 nor a multiple of 16.
_SOME_SIZE = 2


def written_arguments(
    kernel: Any, values: Mapping[str, Any], descriptors: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the names of the arrays that a kernel may write to, in the order of its parameters.

    `values` are arguments by name: tensors, or stand-ins with a `dtype`, and numbers, also symbolic
    ones; options of the launch among them do not matter. `descriptors` has the shape of the block
    of each tensor that the kernel gets as a descriptor. An autotuned kernel may write whatever any
    of its configurations writes; those that a tuner would pass over are left out.

    Raises `CompileError` for what the language does not allow, `Unsupported` where all
    configurations are left out.
    """
    looked_at: set[tuple[Any, ...]] = set()
    written: set[str] = set()
    refusal: Exception | None = None
    names: list[str] = []
    for function, known in _variants(kernel, dict(values)):
        names = [p.name for p in function.params]
        specializations = _specializations(function, known, descriptors or {})
        key = tuple(specialization.key for specialization in specializations.values())
        if key in looked_at:
            continue  # it differs in options of the launch
        request = Request(function, specializations)
        try:
            written.update(effects(request, tile_ir(request))["written"])
        except (Unsupported, CompileTimeAssertionFailure) as error:
            refusal = refusal or error
        else:
            looked_at.add(key)
    if refusal is not None and not looked_at:
        raise refusal
    return [name for name in names if name in written]


def _variants(kernel: Any, values: dict[str, Any]) -> Iterator[tuple[JITFunction, dict[str, Any]]]:
    """Yield the kernel below its decorators, and the arguments with those that they add.

    There is one for each configuration of an autotuned kernel.
    """
    if isinstance(kernel, JITFunction):
        yield kernel, values
    elif isinstance(kernel, Autotuner) and kernel.configs:
        for config in kernel.configs:
            yield from _variants(kernel.fn, {**values, **config.all_kwargs()})
    else:
        known = dict(values)
        if isinstance(kernel, Heuristics):
            for name, rule in kernel.values.items():
                known[name] = rule(dict(known))
        yield from _variants(kernel.fn, known)


def _specializations(
    function: JITFunction, known: Mapping[str, Any], descriptors: Mapping[str, Any]
) -> dict[str, Specialization]:
    given = {p.name: _stand_in(known.get(p.name, p.default)) for p in function.params}
    for name, block in descriptors.items():
        given[name] = _descriptor(given[name], block)
    return {p.name: specialize(p, given[p.name]).specialization for p in function.params}


def _stand_in(value: Any) -> Any:
    if type(value) in {bool, int, float, str, tuple} or value is None:
        return value
    if hasattr(value, "get_dtype"):  # a buffer of Inductor's
        return MockTensor(value.get_dtype())
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return MockTensor(value.dtype)
    kind = type(value).__name__
    if kind == "SymBool":
        return True
    if kind == "SymFloat":
        return 2.5
    return _SOME_SIZE if kind == "SymInt" or hasattr(value, "free_symbols") else value


def _descriptor(tensor: Any, block: Any) -> TensorDescriptor:
    others = len(block) - 1
    return TensorDescriptor(tensor, [1] * (others + 1), [16] * others + [1], list(block))

"""`ASTSource`: a kernel with the types of its arguments written down, instead of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend.parameters import Parameter, element_type_from_text
from tilewright.ir.types import ElementType
from tilewright.runtime.arguments import Specialization, specialize, specialize_type
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.tensor_descriptor import TensorDescriptor
from tilewright.runtime.wrappers import MockTensor

__all__ = ["ASTSource", "Path"]

# Where a parameter stands, and within tuples its items: `(2,)`, `(2, 0)`.
Path = tuple[int, ...]

_CONSTANT = "constexpr"
_DESCRIPTOR = re.compile(r"tensordesc<(?P<element>\w+)\[(?P<block>[\d, ]+)\][^>]*>")
_DIVISIBILITY = "tt.divisibility"


class ASTSource:
    """A kernel, and what is known of its arguments before there are any.

    Args:
        fn: The kernel.
        signature: For each parameter its type: `"*fp32"`, `"i64"`, `"tensordesc<fp16[64, 64]>"`, or
            `"constexpr"`; a tuple of types for a tuple. Parameters that are left out are constants.
        constexprs: The values of constants, by the name of the parameter or by its path.
        attrs: What else is promised, by path: `{(0,): [["tt.divisibility", 16]]}`.

    >>> import tilewright, tilewright.language as tl
    >>> @tilewright.jit
    ... def double(x_ptr, n, BLOCK: tl.constexpr):
    ...     offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     x = tl.load(x_ptr + offsets, mask=offsets < n)
    ...     tl.store(x_ptr + offsets, 2 * x, mask=offsets < n)
    >>> source = ASTSource(
    ...     double, {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 256}
    ... )
    >>> {name: known.key for name, known in source.specializations().items()}
    {'x_ptr': '*fp32:any', 'n': 'i32:any', 'BLOCK': '=256'}
    """

    def __init__(
        self,
        fn: JITFunction,
        signature: Mapping[str, Any],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[Path, Any] | None = None,
    ) -> None:
        self.fn = fn
        self.name = fn.name
        self.signature = dict(signature)
        self.constants: dict[Path, Any] = {
            self._path(place): value for place, value in (constexprs or {}).items()
        }
        self.attrs: dict[Path, Any] = dict(attrs or {})
        unknown = sorted(self.signature.keys() - {*fn.arg_names})
        if unknown:
            raise CompileError(
                f"`{fn.name}` has no parameter `{unknown[0]}`, which the signature gives a type",
                location=fn.location,
                hint=f"its parameters are {', '.join(fn.arg_names)}",
            )

    def _path(self, place: Any) -> Path:
        if isinstance(place, str):
            # Options of the launch are among a generator's constants, too.
            return (self.fn.arg_names.index(place),) if place in self.fn.arg_names else ()
        return place if isinstance(place, tuple) else (place,)

    def specializations(self) -> dict[str, Specialization]:
        """Return what the kernel knows of each parameter."""
        return {
            parameter.name: self._known(
                parameter.name, self.signature.get(parameter.name, _CONSTANT), (position,)
            )
            for position, parameter in enumerate(self.fn.params)
        }

    def _known(self, name: str, kind: Any, path: Path) -> Specialization:
        if isinstance(kind, tuple):
            items = [self._known(name, item, (*path, i)) for i, item in enumerate(kind)]
            keys = ", ".join(str(item.key) for item in items)
            traced = tuple(item.traced for item in items)
            return Specialization(traced, f"tuple({keys})", items=tuple(items))
        if kind == _CONSTANT or path in self.constants:
            constant = Parameter(path[0], name, is_constexpr=True)
            return specialize(constant, self.constants.get(path)).specialization
        described = _DESCRIPTOR.fullmatch(kind)
        element = element_type_from_text(described["element"] if described else kind)
        if element is None:
            raise CompileError(
                f"`{self.name}`: the signature gives `{name}` the type {kind!r}, which is none",
                location=self.fn.location,
                hint='types are written "*fp32", "i32", "constexpr"',
            )
        if described:
            block = [int(size) for size in described["block"].split(",")]
            return _descriptor(name, element, block)
        aligned = any(mark == _DIVISIBILITY for mark, _ in self.attrs.get(path, ()))
        parameter = Parameter(path[0], name, do_not_specialize_on_alignment=not aligned)
        return specialize_type(parameter, element).specialization


def _descriptor(name: str, element: ElementType, block: Sequence[int]) -> Specialization:
    """Return what is known of a descriptor of any array: nothing but its element type and block."""
    others = len(block) - 1
    row = TensorDescriptor(MockTensor(element), [1] * (others + 1), [16] * others + [1], block)
    return specialize(Parameter(0, name), row).specialization

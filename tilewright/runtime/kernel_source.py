"""What a kernel was compiled from, as compiled kernels and hooks tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.frontend.trace import Constant, Described, Runtime
from tilewright.ir.types import PointerType
from tilewright.runtime.arguments import Specialization

__all__ = ["KernelSource"]

# Where a parameter stands, and within tuples its items: `(2,)`, `(2, 0)`.
Path = tuple[int, ...]


class KernelSource(NamedTuple):
    """A kernel, the types of its parameters, the values of constants, and what else is known.

    All are written as for `tilewright.compiler.ASTSource`; constants and `attrs` go by path.
    """

    fn: Any
    signature: dict[str, Any]
    constants: dict[Path, Any]
    attrs: dict[Path, Any]

    @property
    def name(self) -> str:
        return str(self.fn.name)

    @classmethod
    def of(cls, kernel: Any, specializations: Mapping[str, Specialization]) -> KernelSource:
        """Return what a kernel is specialised for."""
        source = cls(kernel, {}, {}, {})
        for position, (name, known) in enumerate(specializations.items()):
            source.signature[name] = source._kind(known.traced, (position,))
        return source

    def _kind(self, traced: Any, path: Path) -> Any:
        match traced:
            case Runtime(type=kind, divisible_by=divisor):
                if divisor % 16 == 0:
                    self.attrs[path] = [["tt.divisibility", 16]]
                return str(kind.element)
            case Described():
                pointer = traced.base.type.element
                assert isinstance(pointer, PointerType)
                return f"tensordesc<{pointer.element_ty}{list(traced.block_shape)}>"
            case Constant():
                self.constants[path] = traced.value
                return "constexpr"
        return tuple(self._kind(item, (*path, place)) for place, item in enumerate(traced))

"""The runtime value that a kernel sees: a scalar or a tile.

`Tensor` carries a value of the IR and no meaning of its own. Its operators and member functions are
those of the semantic layer and of the language, which register themselves with `tensor_operator`,
`tensor_member` and `member_of`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tilewright.errors import CompileError
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.context import Evaluated
from tilewright.ir.core import Op, Value
from tilewright.ir.types import DType, ElementType, PointerType, TileType
from tilewright.ops import Cast, Elementwise, Full, MathFunction
from tilewright.ops.numerics import Array, widen

__all__ = ["BlockType", "Tensor", "constant_array", "member_of", "tensor_member", "tensor_operator"]


@dataclass(frozen=True, slots=True)
class BlockType(TileType):
    """The type of a tile as a kernel sees it: `x.type.shape`, `x.type.element_ty`."""

    @property
    def scalar(self) -> ElementType:
        return self.element

    @property
    def element_ty(self) -> ElementType:
        return self.element

    @property
    def numel(self) -> int:
        return self.size

    def is_block(self) -> bool:
        return True

    def is_ptr(self) -> bool:
        return False


_OPERATORS: dict[str, Callable[..., Any]] = {}

F = TypeVar("F", bound=Callable[..., Any])


def tensor_operator(name: str) -> Callable[[F], F]:
    """Make a function the operator `name` of tensors (`add` for `+`)."""

    def register(function: F) -> F:
        _OPERATORS[name] = function
        return function

    return register


def member_of(*kinds: type) -> Callable[[F], F]:
    """Make `function(x, ...)` also `x.function(...)` for values of these kinds."""

    def register(function: F) -> F:
        @functools.wraps(function, updated=())
        def member(self: Any, *args: Any, **named: Any) -> Any:
            return function(self, *args, **named)

        member.__tilewright_builtin__ = True  # type: ignore[attr-defined]
        member.must_use_result = getattr(function, "must_use_result", False)  # type: ignore[attr-defined]
        for kind in kinds:
            setattr(kind, function.__name__, member)
        return function

    return register


def tensor_member(function: F) -> F:
    """Make `function(x, ...)` also `x.function(...)` for tensors."""
    return member_of(Tensor)(function)


def _operand(value: Any) -> Any:
    value = unwrap(value)
    return value.item() if isinstance(value, np.bool | np.integer | np.floating) else value


def _binary(name: str) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        return _OPERATORS[name](self, _operand(other))

    return method


def _reflected(name: str) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        return _OPERATORS[name](_operand(other), self)

    return method


def _unary(name: str) -> Callable[[Tensor], Any]:
    def method(self: Tensor) -> Any:
        return _OPERATORS[name](self)

    return method


class Tensor:
    """A scalar or a tile of numbers or pointers, computed when the kernel runs.

    Made by the functions of the language (`tl.load`, `tl.arange`, ...), never directly. Shapes are
    tuples of ints; a scalar has shape `()`.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a member that the language has registered."""

    @property
    def dtype(self) -> ElementType:
        """The type of one element, pointers included."""
        return self.value.type.element

    @property
    def type(self) -> ElementType | BlockType:
        """The element type of a scalar; the element type and shape of a tile."""
        type_ = self.value.type
        return BlockType(type_.element, type_.shape) if type_.shape else type_.element

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.value.type.shape

    @property
    def numel(self) -> int:
        """The number of elements."""
        return self.value.type.size

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """The tile with its last two axes swapped."""
        return _OPERATORS["transpose"](self)

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("truediv"), _reflected("truediv")
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _reflected("floordiv")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __pow__, __rpow__ = _binary("pow"), _reflected("pow")
    __lshift__, __rlshift__ = _binary("lshift"), _reflected("lshift")
    __rshift__, __rrshift__ = _binary("rshift"), _reflected("rshift")
    __and__, __rand__ = _binary("and"), _reflected("and")
    __or__, __ror__ = _binary("or"), _reflected("or")
    __xor__, __rxor__ = _binary("xor"), _reflected("xor")
    __lt__, __gt__ = _binary("lt"), _binary("gt")
    __le__, __ge__ = _binary("le"), _binary("ge")
    __eq__, __ne__ = _binary("eq"), _binary("ne")
    __neg__, __pos__ = _unary("neg"), _unary("pos")
    __invert__, __abs__ = _unary("invert"), _unary("abs")
    __getitem__ = _binary("index")
    __hash__ = object.__hash__

    def __matmul__(self, other: Any) -> Any:
        raise CompileError("`@` is not part of the language", hint="use tl.dot(a, b)")

    __rmatmul__ = __matmul__

    def __bool__(self) -> bool:
        if self.numel > 1:
            raise CompileError(
                f"the truth value of a tile of shape {list(self.shape)} is ambiguous",
                hint="reduce it first, for instance tl.max(x, axis=0), or use tl.where",
            )
        return bool(self._known("a Python bool"))

    def __int__(self) -> int:
        return int(self._known("a Python int"))

    def __index__(self) -> int:
        if not self.dtype.is_int():
            raise CompileError(
                f"an index must be an integer, got {self.value.type}",
                hint="convert it: x.to(tl.int32)",
            )
        return int(self)

    def __float__(self) -> float:
        return float(self._known("a Python float"))

    # An operator with an array of NumPy on the left is left to the tile on the right.
    __array_ufunc__ = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the values, those of types that NumPy lacks as fp32, and pointers as uint64."""
        array = self._constant("an array")
        if isinstance(self.dtype, PointerType):
            array = array.view(np.uint64)
        elif self.dtype.is_floating() and array.dtype.kind != "f":
            array = _readable(array, self.dtype)
        return np.array(array, dtype, copy=copy)

    def _constant(self, what: str) -> Array:
        array = constant_array(self.value)
        if array is None:
            raise CompileError(
                f"a value of type {self.value.type} is known only when the kernel runs, {what} is "
                "needed at compile time",
                hint="annotate the parameter it comes from as tl.constexpr",
            )
        return array

    def _known(self, what: str) -> Any:
        array = self._constant(what)
        if array.size != 1:
            raise CompileError(
                f"a tile of shape {list(self.shape)} cannot become {what}",
                hint="reduce it first, for instance tl.sum(x, axis=0)",
            )
        return _readable(array, self.dtype).reshape(())[()]

    def __repr__(self) -> str:
        array = constant_array(self.value)
        if array is None:
            return f"<tensor {self.value.type}>"
        is_pointer = isinstance(self.dtype, PointerType)
        if not self.shape:
            shown = _address(array[()]) if is_pointer else str(_readable(array, self.dtype)[()])
            return f"{self.dtype} {shown}" if is_pointer else shown
        shown = np.array2string(
            _readable(array, self.dtype),
            separator=", ",
            prefix="tensor(",
            formatter={"int": _address} if is_pointer else None,
        )
        return f"tensor({shown}, {self.value.type})"

    def __format__(self, spec: str) -> str:
        known = constant_array(self.value) is not None and not self.shape
        return format(self._known("text") if known and spec else repr(self), spec)


def _address(number: Any) -> str:
    return hex(int(number) % 2**64)


def _readable(array: Array, element: ElementType) -> Array:
    return widen(array, element) if isinstance(element, DType) else array


def constant_array(value: Value) -> Array | None:
    """Return what is known of a value at compile time, or None: constants, arithmetic on them."""
    if isinstance(value, Evaluated):
        array: Array = value.array
        return array
    if not isinstance(value, Op) or value.type.shape:
        return None
    if isinstance(value, Full):
        return value.evaluate()
    if not isinstance(value, Elementwise | MathFunction | Cast):
        return None
    operands = [a for a in map(constant_array, value.operands) if a is not None]
    if len(operands) != len(value.operands):
        return None
    with np.errstate(all="ignore"):
        return np.asarray(value.evaluate(*operands))

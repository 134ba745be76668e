"""What Python's own functions do in a kernel, in both executors."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend import iterators
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic import to_constant
from tilewright.frontend.semantic.comparison import maximum, minimum
from tilewright.frontend.semantic.diagnostics import device_print
from tilewright.frontend.structure import has_tensor
from tilewright.frontend.tensor import Tensor

__all__ = ["PYTHON_FUNCTIONS", "elements", "loop_options", "python_function"]


def _make_range(*bounds: Any, **options: Any) -> iterators.range:
    """Return what `range(...)` is in a kernel; it takes the options of `tl.range`, too."""
    if not 1 <= len(bounds) <= 3:
        raise CompileError(
            f"range takes 1 to 3 arguments, got {len(bounds)}",
            hint="range(end), range(start, end) or range(start, end, step)",
        )
    for name in options:
        if name not in {"step", *_OPTIONS}:
            raise CompileError(
                f"range has no option `{name}`", hint=f"its options are {', '.join(_OPTIONS)}"
            )
    return iterators.range(*bounds, **options)


# A loop that is unrolled, or a comprehension, has no more items.
MOST_UNROLLED = 2**16

# How `tl.range` calls an option, and what the op calls it.
_OPTIONS = {
    "num_stages": "num_stages",
    "loop_unroll_factor": "unroll",
    "flatten": "flatten",
    "warp_specialize": "warp_specialize",
    "disallow_acc_multi_buffer": "disallow_acc_multi_buffer",
    "disable_licm": "disable_licm",
}


def loop_options(loop: iterators.range) -> dict[str, Any]:
    """Return the fields of `tilewright.ops.For` that only advise."""
    options = {field: getattr(loop, name) for name, field in _OPTIONS.items()}
    return {field: option for field, option in options.items() if option is not None}


def _extreme(
    name: str, python: Callable[..., Any], of_two: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    def function(*arguments: Any, **named: Any) -> Any:
        values = [unwrap(a) for a in arguments]
        if len(values) == 1 and isinstance(values[0], tuple):
            values = list(values[0])
        if named or not values:
            raise CompileError(
                f"{name}(...) takes values, or one tuple of them, in a kernel",
                hint=f"write {name}(x, y), or tl.{name}(x, axis=...) of a tile",
            )
        if not has_tensor(tuple(values)):
            return python(values)
        if len(values) == 1:
            raise CompileError(
                f"{name}(x) of one tile is Python's", hint=f"use tl.{name}(x, axis=...)"
            )
        result = values[0]
        for value in values[1:]:
            result = of_two(result, value)
        return result

    return function


def _sum(values: Iterable[Any], start: Any = 0) -> Any:
    if isinstance(values, Tensor):
        raise CompileError("sum(x) of one tile is Python's", hint="use tl.sum(x, axis=...)")
    result = start
    for value in values:
        result = result + value
    return result


def _length(value: Any) -> int:
    if isinstance(value, Tensor):
        if not value.shape:
            raise CompileError("len() of a scalar", hint="only tiles and tuples have a length")
        return value.shape[0]
    return len(tuple(elements(value)) if isinstance(value, iterators.range) else value)


def _to_python(kind: type) -> Callable[..., Any]:
    def function(value: Any = 0, *more: Any) -> Any:
        return kind(unwrap(value), *more)

    return function


def _divmod(a: Any, b: Any) -> tuple[Any, Any]:
    return a // b, a % b


def _round(value: Any, digits: int | None = None) -> Any:
    if isinstance(value, Tensor):
        raise CompileError("round() takes compile-time numbers", hint="use tl.floor(x + 0.5)")
    return round(value, digits)


def _is_instance(value: Any, kinds: Any) -> bool:
    value = unwrap(value)
    return isinstance(value, iterators.range if kinds is builtins.range else kinds)


def elements(value: Any) -> Iterator[Any]:
    """Iterate over something whose length is known at compile time."""
    if isinstance(value, iterators.range):
        known = (to_constant(x, "range: each bound") for x in (value.start, value.stop, value.step))
        return _few(builtins.range(*known))
    if isinstance(value, Tensor):
        raise CompileError(
            f"a tile of type {value.value.type} cannot be iterated over",
            hint="loop with range(...) over blocks of memory, or use tl.reduce",
        )
    return _few(value)


def _few(items: Iterable[Any]) -> Iterator[Any]:
    """The items, as long as there are not so many that their copies of code never end."""
    for number, item in enumerate(items):
        if number == MOST_UNROLLED:
            raise CompileError(
                f"this is unrolled, and there are more than {MOST_UNROLLED} items",
                hint="loop with range(...) or tl.range(...), which count when the kernel runs",
            )
        yield item


def _print(*values: Any, hex: Any = False, **named: Any) -> None:
    if named:
        raise CompileError(
            f"print in a kernel has no option {', '.join(named)}",
            hint="it has `hex=True`; `print` of Python runs in kernel.debug[grid](...)",
        )
    prefix, rest = ("", values)
    if values and isinstance(values[0], str):
        prefix, rest = values[0], values[1:]
    device_print(prefix, rest, hexadecimal=hex, name="print")


# Results are tuples: the language has no lists.
PYTHON_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    range: _make_range,
    min: _extreme("min", min, minimum),
    max: _extreme("max", max, maximum),
    sum: _sum,
    len: _length,
    int: _to_python(int),
    float: _to_python(float),
    bool: _to_python(bool),
    divmod: _divmod,
    round: _round,
    isinstance: _is_instance,
    tuple: lambda values=(): tuple(elements(values)),
    list: lambda values=(): tuple(elements(values)),
    zip: lambda *values: tuple(zip(*map(elements, values), strict=False)),
    enumerate: lambda values, start=0: tuple(enumerate(elements(values), start)),
    reversed: lambda values: tuple(reversed(tuple(elements(values)))),
    sorted: lambda values: tuple(sorted(elements(values))),
    any: lambda values: any(map(bool, elements(values))),
    all: lambda values: all(map(bool, elements(values))),
    print: _print,
}

_TRITON_TOO = frozenset({range, min, max, len, int, float, isinstance, list, print})


def python_function(function: Any) -> Callable[..., Any] | None:
    """Return what a function of Python's is in a kernel, or None if it is itself."""
    try:
        replaced = PYTHON_FUNCTIONS.get(function)
    except TypeError:  # not hashable, so none of ours
        return None
    if replaced is not None and function not in _TRITON_TOO:
        extension(f"{function.__name__}(...) in a kernel", "compute it outside, or write it out")
    return replaced

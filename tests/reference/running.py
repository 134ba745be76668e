"""Kernels made of the calls: what types they take, and what they compute in each executor."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompileError
from tilewright.frontend.trace import Constant, Runtime, trace
from tilewright.ir.types import DTYPES, DType, PointerType, TileType
from tilewright.ops.numerics import narrow

__all__ = ["DTYPE_NAMES", "accepted", "outputs"]

SIZE = 64
DTYPE_NAMES = tuple(DTYPES)
_FORMATS = {"u8": "'e2m1'", "u16": "'bf16'", "fp8e4nv": "'e4m3'", "fp8e5": "'e5m2'",
            "bf16": "'bf16'", "fp16": "'fp16'"}  # fmt: skip

_HEAD = """
def kernel(x_ptr, y_ptr, z_ptr, p, D: tl.constexpr{outs}):
    i = tl.arange(0, 16)
    m = i % 2 == 0
    x, y, z = tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(z_ptr + i)
    s = tl.load(x_ptr)
"""


def is_typed(call: str) -> bool:
    """Whether a call depends on the type at all."""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in call).split())
    return bool(words & {"x", "y", "z", "s", "p", "D"})


def _made(text: str) -> Any:
    namespace: dict[str, Any] = {"tl": tl}
    exec(text, namespace)
    return tw.jit(namespace["kernel"], source=text)


def _filled(call: str, dtype: str) -> str:
    return call.replace("{format}", _FORMATS.get(dtype, "'none'"))


@functools.cache
def _results(call: str, dtype: str) -> tuple[TileType, ...]:
    """The types that a call returns; raises `CompileError` where it takes no such type."""
    text = _HEAD.format(outs="") + f"    return {_filled(call, dtype)}\n"
    pointer = Runtime(TileType(PointerType(DTYPES[dtype])), 16)
    arguments: dict[str, Any] = dict.fromkeys(("x_ptr", "y_ptr", "z_ptr", "p"), pointer)
    function = trace(_made(text), {**arguments, "D": Constant(DTYPES[dtype])})
    return tuple(value.type for value in function.body.yields)


@functools.cache
def accepted(call: str) -> tuple[str, ...]:
    """The types that a call takes."""
    found = []
    for dtype in DTYPE_NAMES:
        try:
            _results(call, dtype)
        except CompileError:
            continue
        found.append(dtype)
    return tuple(found)


def _values(dtype: DType, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    if dtype.is_bool():
        return generator.random(SIZE) < 0.5
    if dtype.is_int():
        return generator.integers(1, 8, SIZE).astype(dtype.numpy)
    numbers = generator.uniform(0.25, 1, SIZE).astype(np.float32)
    return narrow(numbers, dtype) if dtype.primitive_bitwidth < 32 else numbers.astype(dtype.numpy)


def _passed(array: Any, dtype: DType) -> Any:
    """An array as a kernel takes it: NumPy has no type for fp8e4b15."""
    return tw.reinterpret(array, dtype) if dtype.name == "fp8e4b15" else array


def outputs(call: str, dtype: str, launch: Any) -> list[Any]:
    """What a call returns, and what it leaves in memory, as arrays."""
    types = _results(call, dtype)
    outs = "".join(f", o{number}" for number in range(len(types)))
    lines = [_HEAD.format(outs=outs), f"    r = {_filled(call, dtype)}\n"]
    for number, type_ in enumerate(types):
        value = "r" if len(types) == 1 else f"r[{number}]"
        if type_.shape:
            flat = f"tl.reshape({value}, ({type_.size},))"
            lines.append(f"    tl.store(o{number} + tl.arange(0, {type_.size}), {flat})\n")
        else:
            lines.append(f"    tl.store(o{number}, {value})\n")
    element = DTYPES[dtype]
    arrays = [_values(element, seed) for seed in range(4)]
    results = [np.zeros(max(1, t.size), t.element.numpy) for t in types]
    given = [_passed(a, element) for a in arrays]
    taken = [_passed(a, t.element) for a, t in zip(results, types, strict=True)]
    launch(_made("".join(lines)), (1,), *given, element, *taken)
    return [*results, arrays[3]]

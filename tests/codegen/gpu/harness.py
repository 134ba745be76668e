"""Compiles a kernel for a GPU and runs it in the emulator, beside the interpreter."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia.assembler import Assembled, assemble
from tilewright.codegen.nvidia.compile import PtxKernel, generate, prepare
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.emulator import Emulator
from tilewright.frontend.trace import trace
from tilewright.interpreter import interpret
from tilewright.ir.core import Function
from tilewright.passes.pipeline import optimize
from tilewright.runtime.arguments import leaves, specialize
from tilewright.runtime.emulated import encode_for_emulator
from tilewright.runtime.tensor_maps import TensorMaps
from tilewright.target import NVIDIA_TARGETS, NvidiaTarget
from tilewright.tools.tensor_descriptor import TensorDescriptor

ARCHITECTURES = {target.architecture: target for target in NVIDIA_TARGETS}
TARGETS = {"a100": ARCHITECTURES["sm_80"], "h100": ARCHITECTURES["sm_90a"]}

_OPTIONS = {field.name for field in fields(GpuOptions)}


def lowered(kernel, values: Sequence[Any], constants: dict[str, Any]) -> tuple[Function, list[Any]]:
    """The optimised tile function of a call, and the values of its parameters."""
    definition = kernel
    by_name = dict(zip([p.name for p in definition.params], values, strict=False)) | constants
    given = [p for p in definition.params if p.name in by_name]
    arguments = [specialize(p, by_name[p.name]) for p in given]
    traced = {a.name: a.specialization.traced for a in arguments}
    return optimize(trace(definition, traced)), [a.value for a in leaves(arguments)]


def compiled(function: Function, target: NvidiaTarget, **options: Any) -> PtxKernel:
    """The PTX of a tile function; assembled, where there is a ptxas, and free of spills."""
    chosen = GpuOptions(**options)
    kernel = generate(prepare(function, target, chosen), target, chosen)
    if find_ptxas() is not None:
        found = _assembled(kernel.ptx, target)
        assert not found.spilled_bytes
        assert not found.stack_bytes
        assert not found.warnings
    return kernel


@functools.lru_cache(maxsize=16)
def _assembled(ptx: str, target: NvidiaTarget) -> Assembled:
    """What ptxas makes of a text; tests look at a kernel's PTX and run it."""
    return assemble(ptx, target, find_ptxas())


def emulate(kernel: PtxKernel, grid: Sequence[int], arguments: Sequence[Any], **options: Any):
    """Run a kernel in the emulator; arrays are passed as they are, tensor maps are made of them."""
    return Emulator(kernel.ptx).launch(
        kernel.symbol, grid, (32 * kernel.num_warps,), taken(kernel, arguments),
        shared_bytes=kernel.shared_bytes, buffers=unread(kernel, arguments), **options,
    )  # fmt: skip


def taken(kernel: PtxKernel, arguments: Sequence[Any]) -> list[Any]:
    """What a kernel takes of its arguments, and its tensor maps."""
    return [*(arguments[number] for number in kernel.passed), *tensor_maps(kernel, arguments)]


def unread(kernel: PtxKernel, arguments: Sequence[Any]) -> list[np.ndarray]:
    """The arrays that it only comes to by its tensor maps, if at all."""
    others = (a for number, a in enumerate(arguments) if number not in kernel.passed)
    return [a for a in others if isinstance(a, np.ndarray)]


def tensor_maps(kernel: PtxKernel, arguments: Sequence[Any]) -> list[bytes]:
    """The tensor maps that a kernel takes behind its arguments."""
    values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    maps = TensorMaps(kernel.tensor_maps, kernel.symbol, encode_for_emulator)
    return maps.of_launch(values, [f"argument {number}" for number in range(len(values))])


def kernel_of(kernel, values: Sequence[Any], *, target="h100", **constants: Any) -> PtxKernel:
    """What a call is compiled to. Keywords are launch options (`num_warps`, ...) and constants."""
    options = {name: constants.pop(name) for name in _OPTIONS & constants.keys()}
    function, _ = lowered(kernel, values, constants)
    return compiled(function, (TARGETS | ARCHITECTURES)[target], **options)


def ptx_of(kernel, values: Sequence[Any], **options: Any) -> str:
    """The PTX of a call, as `kernel_of` compiles it."""
    return kernel_of(kernel, values, **options).ptx


def passed(values: Sequence[Any], raw: Sequence[Any]) -> list[Any]:
    """The values of parameters, with the arrays of a call, or of its descriptors, as such."""
    bases = [v.base if isinstance(v, TensorDescriptor) else v for v in values]
    arrays = {v.ctypes.data: v for v in bases if isinstance(v, np.ndarray)}
    return [arrays.get(v, v) for v in raw]


def run(
    kernel, grid: Sequence[int], values: Sequence[Any], *, target="h100", races=True,
    **constants: Any,
) -> PtxKernel:  # fmt: skip
    """Run a call in the emulator, on its own arrays; nothing may be found."""
    options = {name: constants.pop(name) for name in _OPTIONS & constants.keys()}
    function, raw = lowered(kernel, values, constants)
    ptx = compiled(function, (TARGETS | ARCHITECTURES)[target], **options)
    where = (*grid, 1, 1, 1)[:3]
    report = emulate(ptx, where, passed(values, raw), races=races, uninitialised=races)
    assert not report.findings, report
    return ptx


def run_both(
    kernel, grid: Sequence[int], values: Sequence[Any], **options: Any
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (interpreted, emulated) for each array, after launches on copies of `values`.

    Keywords are those of `run`.
    """
    sides = [[v.copy() if isinstance(v, np.ndarray) else v for v in values] for _ in range(2)]
    run(kernel, grid, sides[1], **options)
    constants = {k: v for k, v in options.items() if k not in {"target", "races", *_OPTIONS}}
    function, raw = lowered(kernel, sides[0], constants)
    interpret(function, raw, (*grid, 1, 1, 1)[:3])
    arrays = ([v for v in side if isinstance(v, np.ndarray)] for side in sides)
    return list(zip(*arrays, strict=True))


def check(kernel, grid: Sequence[int], values: Sequence[Any], *, tolerance=0.0, **options: Any):
    """Interpreted and emulated arrays agree, exactly or within a relative tolerance."""
    for expected, got in run_both(kernel, grid, values, **options):
        if tolerance:
            wide = expected.astype(np.float64), got.astype(np.float64)
            np.testing.assert_allclose(wide[1], wide[0], rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, expected)


def numbers(shape, dtype=np.float32, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def small_integers(shape, dtype=np.float32, seed=0) -> np.ndarray:
    """Numbers whose sums of products are exact in every order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)

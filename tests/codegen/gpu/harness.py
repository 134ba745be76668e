"""Compiles a kernel for a GPU and runs it in the emulator, beside the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia.assembler import assemble, find_ptxas
from tilewright.codegen.nvidia.compile import PtxKernel, generate, prepare
from tilewright.emulator import Emulator
from tilewright.frontend.trace import trace
from tilewright.interpreter import interpret
from tilewright.ir.core import Function
from tilewright.passes.pipeline import optimize
from tilewright.runtime.arguments import leaves, specialize
from tilewright.runtime.emulated import encode_for_emulator
from tilewright.runtime.tensor_maps import TensorMaps
from tilewright.target import NVIDIA_TARGETS, NvidiaTarget

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
    ptxas = find_ptxas()
    if ptxas is not None:
        found = assemble(kernel.ptx, target, ptxas)
        assert not found.spilled_bytes
        assert not found.stack_bytes
        assert not found.warnings
    return kernel


def emulate(kernel: PtxKernel, grid: Sequence[int], arguments: Sequence[Any], **options: Any):
    """Run a kernel in the emulator; arrays are passed as they are, tensor maps are made of them."""
    return Emulator(kernel.ptx).launch(
        kernel.symbol, grid, (32 * kernel.num_warps,),
        [*arguments, *tensor_maps(kernel, arguments)],
        shared_bytes=kernel.shared_bytes, **options,
    )  # fmt: skip


def tensor_maps(kernel: PtxKernel, arguments: Sequence[Any]) -> list[bytes]:
    """The tensor maps that a kernel takes behind its arguments."""
    values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    maps = TensorMaps(kernel.tensor_maps, kernel.symbol, encode_for_emulator)
    return maps.of_launch(values, [f"argument {number}" for number in range(len(values))])


def run_both(
    kernel, grid: Sequence[int], values: Sequence[Any], *, target="h100", races=True,
    **constants: Any,
) -> list[tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """Return (interpreted, emulated) for each array, after a launch on copies of `values`.

    Keywords are launch options (`num_warps`, ...) and constants of the kernel.
    """
    options = {name: constants.pop(name) for name in _OPTIONS & constants.keys()}
    sides = []
    shape = (*grid, 1, 1, 1)[:3]
    for emulated in (False, True):
        own = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
        function, raw = lowered(kernel, own, constants)
        if emulated:
            arrays = iter([v for v in own if isinstance(v, np.ndarray)])
            addresses = {v.ctypes.data for v in own if isinstance(v, np.ndarray)}
            passed = [next(arrays) if v in addresses else v for v in raw]
            ptx = compiled(function, (TARGETS | ARCHITECTURES)[target], **options)
            report = emulate(ptx, shape, passed, races=races)
            assert not report.findings, report
        else:
            interpret(function, raw, shape)
        sides.append([v for v in own if isinstance(v, np.ndarray)])
    return list(zip(*sides, strict=True))

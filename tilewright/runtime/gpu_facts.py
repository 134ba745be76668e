"""What a GPU of this machine can do at most, by its driver and its `nvidia-smi`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from ctypes import byref, c_int
from typing import Any

from tilewright.errors import LaunchError, Unsupported
from tilewright.ir.types import DType
from tilewright.runtime.arrays import dtype_of
from tilewright.runtime.cuda import driver

__all__ = ["get_dram_gbps", "get_max_simd_tflops", "get_max_tensorcore_tflops", "nvsmi"]

# CU_DEVICE_ATTRIBUTE_*
_MULTIPROCESSORS, _MEMORY_KILOHERTZ, _BUS_BITS, _CLOCK_KILOHERTZ = 16, 36, 37, 13
_MAJOR, _MINOR = 75, 76

# Operations of a multiprocessor in a cycle, a product and a sum counted as two, dense products of
# fp16 and arithmetic of fp32: "Throughput of Native Arithmetic Instructions" in the CUDA C++
# Programming Guide, and the data sheets of the architectures.
_PRODUCTS = {75: 1024, 80: 2048, 86: 1024, 87: 1024, 89: 1024, 90: 4096, 100: 8192, 103: 8192}
_LATER_PRODUCTS = 1024
_ARITHMETIC = {75: 128, 80: 128}
_LATER_ARITHMETIC = 256


def get_dram_gbps(device: int | None = None) -> float:
    """Return the bandwidth of a GPU's memory in GB/s: two transfers in a cycle of its clock.

    Raises `Unsupported` without a GPU, as the others do.
    """
    clock, bits = _facts(device, _MEMORY_KILOHERTZ, _BUS_BITS)
    return clock * 1e3 * 2 * bits / 8 / 1e9


def get_max_tensorcore_tflops(
    dtype: Any, clock_rate: float | None = None, device: int | None = None
) -> float:
    """Return how many TFLOPS of dense products of a type a GPU has, at a clock in kHz.

    The clock is the highest one where it is left out; fp32 stands for tf32.

    Raises `LaunchError` for types that are not multiplied that fast.
    """
    element = _element(dtype)
    factors = {"fp32": 0.5, "fp16": 1, "bf16": 1, "i16": 1, "i8": 2, "u8": 2}
    factor = 2 if element.short_name.startswith("fp8") else factors.get(element.short_name)
    if factor is None:
        raise LaunchError(
            f"there are no tensor cores for {element}",
            hint="fp8, fp16, bf16, fp32 (as tf32), int8, uint8 and int16 have rates",
        )
    each = _by_capability(device, _PRODUCTS, _LATER_PRODUCTS)
    return _tflops(each * factor, clock_rate, device)


def get_max_simd_tflops(
    dtype: Any, clock_rate: float | None = None, device: int | None = None
) -> float:
    """Return how many TFLOPS of arithmetic of a type a GPU has, at a clock in kHz.

    The clock is the highest one where it is left out. Raises `LaunchError` for other types than
    fp32, fp16 and bf16.
    """
    element = _element(dtype)
    each = _by_capability(device, _ARITHMETIC, _LATER_ARITHMETIC)
    if element.short_name in {"fp16", "bf16"}:
        each = 256
    elif element.short_name != "fp32":
        raise LaunchError(
            f"the rate of arithmetic on {element} is not known: fp32, fp16, bf16",
            hint="ask for fp32, and scale by the width",
        )
    return _tflops(each, clock_rate, device)


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Return what `nvidia-smi --query-gpu` says of attributes of GPU 0, as ints.

    Raises `Unsupported` where there is no such program, or it fails.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        raise Unsupported("there is no `nvidia-smi` on the path", hint="it comes with the driver")
    command = [tool, "-i", "0", f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise Unsupported(
            f"nvidia-smi: {(done.stderr or done.stdout).strip()}",
            hint="run it by hand: it says what is wrong with the driver",
        )
    return [int(float(value)) for value in done.stdout.split(",")]


def _element(dtype: Any) -> DType:
    element = dtype_of(dtype)
    if element is None:
        raise LaunchError(
            f"{dtype!r} is no dtype", hint="pass tl.float16, np.float16 or torch.float16"
        )
    return element


def _facts(device: int | None, *attributes: int) -> list[int]:
    torch = sys.modules.get("torch")
    if device is None:
        has_current = torch is not None and torch.cuda.is_initialized()
        device = torch.cuda.current_device() if torch is not None and has_current else 0
    handle, doing = c_int(), f"asking for GPU {device}"
    driver().call("cuDeviceGet", byref(handle), device, doing=doing)
    values = [c_int() for _ in attributes]
    for value, attribute in zip(values, attributes, strict=True):
        driver().call("cuDeviceGetAttribute", byref(value), attribute, handle, doing=doing)
    return [value.value for value in values]


def _by_capability(device: int | None, known: dict[int, int], later: int) -> int:
    major, minor = _facts(device, _MAJOR, _MINOR)
    return known.get(10 * major + minor, later)


def _tflops(each: float, clock: float | None, device: int | None) -> float:
    count, fastest = _facts(device, _MULTIPROCESSORS, _CLOCK_KILOHERTZ)
    return count * each * (fastest if clock is None else clock) * 1e3 / 1e12

"""The C header of a kernel that was compiled ahead of time."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.cpu.compile import CpuKernel
from tilewright.frontend.function import KernelFunction
from tilewright.ir.types import PointerType
from tilewright.runtime.artifact_code import CParameter, GpuImage

__all__ = ["c_type", "header"]

_C_TYPES = {
    "i1": "uint8_t",
    "fp16": "uint16_t",
    "bf16": "uint16_t",
    "fp32": "float",
    "fp64": "double",
}


def c_type(parameter: CParameter) -> str:
    """Return the type of a parameter in C, with a space behind it unless it ends in `*`."""
    element = parameter.element
    if isinstance(element, PointerType):
        return "void *" if parameter.is_written else "const void *"
    if element.short_name in _C_TYPES:
        return f"{_C_TYPES[element.short_name]} "
    sign = "" if element.is_int_signed() else "u"
    return f"{sign}int{element.primitive_bitwidth}_t "


def header(
    kernel: KernelFunction,
    name: str,
    parameters: Sequence[CParameter],
    cpu: CpuKernel | None,
    images: Sequence[GpuImage],
) -> str:
    """Return the text of the header."""
    declared = "".join(f", {c_type(p)}{p.c_name}" for p in parameters)
    parts = [_HEAD.format(name=name, kernel=kernel.name, guard=f"TILEWRIGHT_{name.upper()}_H")]
    if cpu is not None:
        failures = "".join(
            f"\n *   {number}: {text.replace('*/', '* /')}{_place(place)}"
            for number, (text, place) in enumerate(cpu.assertions, 1)
        )
        parts.append(_CPU.format(name=name, declared=declared, failures=failures))
    if images:
        parts.append(_gpu(name, parameters, images))
    parts.append(_TAIL)
    return "".join(parts)


def _place(place: object) -> str:
    line = getattr(place, "line", None)
    return "" if line is None else f" (line {line})"


_HEAD = """/* {kernel}, compiled ahead of time by Tilewright. Link {name}.o. */
#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif
"""

_TAIL = """#ifdef __cplusplus
}
#endif
#endif
"""

_CPU = """
/* Run all programs of a grid on this thread, or those with numbers from `first` on, below `last`:
 * programs may be spread over threads. Return 0, -1 where there is no memory, or the number of an
 * assertion that failed{failures}. */
int32_t {name}(uint32_t grid_x, uint32_t grid_y, uint32_t grid_z{declared});
int32_t {name}_programs(uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint64_t first,
                        uint64_t last{declared});
"""

_GPU = """
/* With <cuda.h> included before: start all programs of a grid on the GPU of the current context.
 * Return CUDA_ERROR_NO_BINARY_FOR_GPU where there is no code for it. */
{externs}#ifdef CUDA_VERSION
static inline CUresult {name}_cuda(CUstream stream, uint32_t grid_x, uint32_t grid_y,
                                   uint32_t grid_z{declared}) {{
  static const struct {{
    int major, minor, is_exact, is_ptx;
    const void *image;
    const char *symbol;
    unsigned shared_bytes, threads;
  }} images[] = {{
{entries}  }};
  static CUfunction function;
  static int chosen = -1;
  CUresult result;
  if (chosen < 0) {{
    int major, minor, best = -1;
    CUdevice device;
    CUmodule module;
    if ((result = cuCtxGetDevice(&device)) != CUDA_SUCCESS) return result;
    result = cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (result != CUDA_SUCCESS) return result;
    result = cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (result != CUDA_SUCCESS) return result;
    for (int i = 0; i < (int)(sizeof images / sizeof *images); i++) {{
      int own = 10 * images[i].major + images[i].minor, here = 10 * major + minor;
      int fits = images[i].is_exact ? own == here
                                    : own <= here && (images[i].is_ptx || images[i].major == major);
      int known = best < 0 ? -1 : 10 * images[best].major + images[best].minor;
      if (fits && own >= known) best = i;
    }}
    if (best < 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if ((result = cuModuleLoadData(&module, images[best].image)) != CUDA_SUCCESS) return result;
    result = cuModuleGetFunction(&function, module, images[best].symbol);
    if (result != CUDA_SUCCESS) return result;
    result = cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                (int)images[best].shared_bytes);
    if (result != CUDA_SUCCESS) return result;
    chosen = best;
  }}
  void *parameters[] = {{{addresses}0}};
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, images[chosen].threads, 1, 1,
                        images[chosen].shared_bytes, stream, parameters, 0);
}}
#endif
"""


def _gpu(name: str, parameters: Sequence[CParameter], images: Sequence[GpuImage]) -> str:
    declared = "".join(
        f", CUdeviceptr {p.c_name}"
        if isinstance(p.element, PointerType)
        else f", {c_type(p)}{p.c_name}"
        for p in parameters
    )
    externs = "".join(f"extern const unsigned char {i.variable}[{len(i.image)}];\n" for i in images)
    entries = ""
    for image in images:
        major, minor = image.target.compute_capability
        exact = int(image.target.architecture.endswith("a"))
        values = (
            *(major, minor, exact, int(image.is_ptx), image.variable, f'"{image.symbol}"'),
            *(image.shared_bytes, image.threads),
        )
        entries += f"    {{{', '.join(map(str, values))}}},\n"
    addresses = "".join(f"&{p.c_name}, " for p in parameters)
    return _GPU.format(
        name=name, declared=declared, externs=externs, entries=entries, addresses=addresses
    )

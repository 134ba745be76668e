"""Launchers of kernels on GPUs: the same guards as on the CPU, then one call of the driver.

They take PyTorch's tensors, on the kernel's GPU, and launch on PyTorch's current stream of that
GPU. Any other array, and tensors of a PyTorch without DLPack's C functions, are left to Python.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.codegen.nvidia.tensor_map import (
    MAP_ALIGNMENT,
    MAP_BYTES,
    MOST_FACTORS,
    Extent,
    Parameter,
    Product,
    TensorMap,
)
from tilewright.ir.types import DTYPES
from tilewright.ops.descriptor import MAX_DESCRIPTOR_RANK
from tilewright.runtime import dlpack, history
from tilewright.runtime.cuda import Function, driver
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.launch_parameters import ArrayParameter, Launcher, LaunchParameter
from tilewright.runtime.launcher_code_tensor_map import MADE_OF_BYTES
from tilewright.runtime.launcher_shared import (
    OncePerProcess,
    Program,
    SharedCode,
    bind_program,
    contents,
    declining_launcher,
    first_entry,
    python_layout_is_known,
    slot_sizes,
)
from tilewright.runtime.launcher_table import MapField, Table
from tilewright.runtime.tensor_maps import L2_PROMOTION, element_number, swizzle_number
from tilewright.runtime.torch_interface import TensorKeys, torch_interface

if TYPE_CHECKING:
    from tilewright.runtime import launcher_code_gpu
else:
    launcher_code_gpu = Deferred("tilewright.runtime.launcher_code_gpu")

__all__ = ["Attributes", "bind_gpu_launcher"]


class Attributes:
    """Launch attributes as the driver reads them: `CUlaunchAttribute`, 72 bytes each."""

    _COOPERATIVE, _OVERLAPPING = 2, 6  # CU_LAUNCH_ATTRIBUTE_*
    _LAYOUT = struct.Struct("<I4xI60x")

    def __init__(self, *, is_cooperative: bool = False, overlaps: bool = False) -> None:
        wanted = {self._COOPERATIVE: is_cooperative, self._OVERLAPPING: overlaps}
        given = [number for number, holds in wanted.items() if holds]
        self.data = b"".join(self._LAYOUT.pack(number, 1) for number in given)
        self.count = len(given)

    @property
    def address(self) -> int:
        """Where they are, as long as this object lives."""
        return contents(self.data) if self.data else 0


def bind_gpu_launcher(
    function: Function,
    parameters: Sequence[LaunchParameter],
    *,
    threads: int,
    attributes: Attributes,
    passed: Sequence[int],
    tensor_maps: Sequence[TensorMap] = (),
    on_error: Callable[[int], object],
) -> Launcher:
    """Return the builtin `launcher(grid_x, grid_y, grid_z, *arguments)` of a kernel.

    `passed` numbers the arguments that the kernel takes, without constants, a descriptor being as
    many as it has parts. It declines grids that the driver does not take, and arrays that have no
    tensor map. `on_error` is called with the driver's code of a launch that went wrong, and raises.
    The builtin keeps the function's module loaded.
    """
    if not python_layout_is_known():
        return declining_launcher
    gpu, maps = function.module.gpu, _Maps(tensor_maps)
    maps_offset = function.parameter_offset(len(passed)) if tensor_maps else 0
    if maps_offset is None:
        return declining_launcher
    packed = _Packed(parameters, passed, maps_offset, len(tensor_maps))
    head = (
        function.address,
        gpu.context,
        dlpack.CUDA | gpu.number << 32,
        threads,
        function.shared_bytes,
        attributes.address,
        attributes.count,
        function.number,
        maps.address,
        len(tensor_maps),
        packed.address,
        len(passed),
        packed.size_bytes,
        packed.maps_offset,
    )
    program = Program(parameters, _array_words)
    return bind_program(
        _shared(),
        function.name,
        head,
        program,
        on_error,
        owner=(function, attributes, maps, packed),
    )


def _array_words(parameter: ArrayParameter) -> tuple[int, int]:
    return dlpack.dtype_word(parameter.dtype_name), 8 * first_entry(parameter.dtype_name)


class _Packed:
    """Where the parameters of a kernel lie when they are packed: each at a multiple of its size.

    Tensor maps follow them, aligned as the memory of the GPU is into which all are copied. Where
    that begins differs between architectures, so the driver tells at which offset the first lies.
    """

    def __init__(
        self,
        parameters: Sequence[LaunchParameter],
        passed: Sequence[int],
        maps_offset: int,
        map_count: int,
    ) -> None:
        sizes, words, end = slot_sizes(parameters), [], 0
        for number in passed:
            start = end + -end % sizes[number]
            words += [8 * number, start]
            end = start + sizes[number]
        self._words = struct.pack(f"<{len(words)}I", *words)
        self.address = contents(self._words)
        self.maps_offset = maps_offset
        self.size_bytes = maps_offset + map_count * MAP_BYTES if map_count else end


class _Maps:
    """What the tensor maps of a kernel are made of, and room for those that were made."""

    _HEAD = struct.Struct("<Q5I4x5I4x5I4x")
    _TERM = struct.Struct("<4i2Q")

    def __init__(self, maps: Sequence[TensorMap]) -> None:
        size = len(maps) * MADE_OF_BYTES
        self._memory = (ctypes.c_char * (size + MAP_ALIGNMENT))()
        start = ctypes.addressof(self._memory)
        self.address = start + -start % MAP_ALIGNMENT
        for number, tensor_map in enumerate(maps):
            data = self._described(tensor_map)
            ctypes.memmove(self.address + number * MADE_OF_BYTES, data, len(data))

    def _described(self, tensor_map: TensorMap) -> bytes:
        box, size = tensor_map.box[::-1], tensor_map.element.itemsize
        terms = [
            self._term(Parameter(tensor_map.base), 1),
            *(self._term(extent, 1) for extent in reversed(tensor_map.sizes)),
            *(self._term(extent, size) for extent in reversed(tensor_map.strides)),
        ]
        numbers = (
            element_number(tensor_map.element),
            len(box),
            swizzle_number(tensor_map.swizzle),
            L2_PROMOTION,
            int(tensor_map.fills_nan),
        )
        rest = (*box, *[1] * (MAX_DESCRIPTOR_RANK - len(box)), *[1] * MAX_DESCRIPTOR_RANK)
        head = self._HEAD.pack(len(terms), *numbers, *rest)
        assert len(head) == MapField.TERMS
        return head + b"".join(terms)

    def _term(self, extent: Extent, factor: int) -> bytes:
        match extent:
            case Parameter(number):
                extent = Product((number,), 1, 64)
            case int():
                extent = Product((), extent, 64)
        slots = (*extent.numbers, *[-1] * (MOST_FACTORS - len(extent.numbers)))
        return self._TERM.pack(*slots, 64 - extent.bits, extent.factor % 2**64, factor)


class _Shared(SharedCode):
    """The code of the GPUs' launchers."""

    def __init__(self) -> None:
        super().__init__("gpu", lambda: launcher_code_gpu.GPU_PART)

    def _usual(self, keys: TensorKeys) -> int:
        return keys.usual_on_gpu

    def _fill_own(self) -> bool:
        functions = dlpack.exchange(sys.modules.get("torch"))
        addresses: dict[int, int] = {
            Table.LAUNCH: driver().address("cuLaunchKernel"),
            Table.LAUNCH_WITH_ATTRIBUTES: driver().address("cuLaunchKernelEx"),
            Table.GET_CONTEXT: driver().address("cuCtxGetCurrent"),
            Table.SET_CONTEXT: driver().address("cuCtxSetCurrent"),
            Table.HISTORY: history.address(),
            Table.ENCODE_TENSOR_MAP: driver().address("cuTensorMapEncodeTiled"),
        }
        self.enter_addresses({**addresses, **_torch_entries()})
        if functions is None:
            return False
        self.enter_addresses(
            {Table.VIEW_TENSOR: functions.view, Table.CURRENT_STREAM: functions.current_stream}
        )
        return True


# There is none for these.
_NO_DTYPE = 2**31 - 1


def _torch_entries() -> dict[int, int]:
    """The entries of PyTorch's C interface."""
    found = torch_interface()
    if found is None:
        return {Table.GET_TENSOR_DTYPE: 0}
    return {
        Table.GET_DATA: found.get_data,
        Table.GET_TENSOR_DTYPE: found.get_dtype,
        Table.GET_DEVICE_INDEX: found.get_device_index,
        **{first_entry(name): found.dtypes.get(name, _NO_DTYPE) for name in DTYPES},
    }


_shared = OncePerProcess(_Shared)


def accept_torch() -> None:
    """Let launchers that were made before PyTorch was imported accept its tensors."""
    made = _shared.made
    if made is not None:
        made.accept_torch()

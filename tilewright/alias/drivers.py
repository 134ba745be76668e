"""What Triton calls the active driver: what kernels run on by default, and facts about it.

Tilewright runs a kernel where its arrays are. Host code that has no array at hand asks here: for
the first NVIDIA GPU where there is one, else for the CPU.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

from tilewright import env
from tilewright.compiler import GPUTarget
from tilewright.errors import LaunchError
from tilewright.language import target_info
from tilewright.runtime import cuda
from tilewright.runtime.default_target import current_gpu, default_target, has_gpu
from tilewright.runtime.emulated import current_emulation
from tilewright.target import NvidiaTarget
from tilewright.testing import do_bench

__all__ = [
    "BACKENDS", "Backend", "CpuDriver", "DriverBase", "GPUDriver", "NvidiaDriver", "driver",
    "max_shared_mem",
]  # fmt: skip

# CU_DEVICE_ATTRIBUTE_* of what Triton tells of a GPU.
_ATTRIBUTES = {
    "max_shared_mem": 97,
    "max_num_regs": 12,
    "multiprocessor_count": 16,
    "warpSize": 10,
    "sm_clock_rate": 13,
    "mem_clock_rate": 36,
    "mem_bus_width": 37,
}


# What benchmarks write over between runs: more than the caches of any machine hold.
_BEYOND_CACHES_BYTES = 256 << 20


class _CpuFacts:
    @staticmethod
    def get_device_properties(device: int = 0) -> dict[str, int]:
        """Return the usable cores as multiprocessors; there is no shared memory in its sense."""
        return {
            "max_shared_mem": 0,
            "max_num_regs": 0,
            "multiprocessor_count": len(os.sched_getaffinity(0)),
            "warpSize": 1,
        }


class _NvidiaFacts:
    @staticmethod
    def get_device_properties(device: int = 0) -> dict[str, int]:
        """Return facts about a GPU under Triton's names."""
        handle, doing = ctypes.c_int(), f"asking for GPU {device}"
        cuda.driver().call("cuDeviceGet", ctypes.byref(handle), device, doing=doing)
        values = {name: ctypes.c_int() for name in _ATTRIBUTES}
        for name, value in values.items():
            cuda.driver().call(
                "cuDeviceGetAttribute",
                *(ctypes.byref(value), _ATTRIBUTES[name], handle),
                doing=doing,
            )
        return {name: value.value for name, value in values.items()}


class DriverBase:
    """What `isinstance` says of all drivers."""


class CpuDriver(DriverBase):
    """The CPU: one device, number 0, with no streams."""

    utils = _CpuFacts()

    @staticmethod
    def is_active() -> bool:
        """Whether it can be used: always."""
        return True

    @staticmethod
    def gpu() -> NvidiaTarget | None:
        """Return the GPU that is being emulated, None where there is none."""
        emulation = current_emulation()
        return None if emulation is None else emulation.target

    @classmethod
    def get_current_target(cls) -> GPUTarget:
        """Return the host's architecture, or that of `gpu`."""
        return GPUTarget.of(cls.gpu())

    @staticmethod
    def get_current_device() -> int:
        """Return 0: there is one."""
        return 0

    @staticmethod
    def set_current_device(device: int) -> None:
        """Accept device 0; raise `LaunchError` for any other."""
        if device != 0:
            raise LaunchError(
                f"the CPU is device 0, there is no device {device}",
                hint="`driver.set_active` chooses among the kinds of machines",
            )

    @staticmethod
    def get_current_stream(device: int | None = None) -> int:
        """Return 0: there are no streams."""
        return 0

    @staticmethod
    def get_active_torch_device() -> Any:
        """Return PyTorch's name for it."""
        import torch

        return torch.device("cpu")

    @staticmethod
    def get_device_interface() -> Any:
        """Return PyTorch's module about it."""
        import torch

        return torch.cpu

    @staticmethod
    def get_benchmarker() -> Any:
        """Return what takes the time of a function."""
        return do_bench

    @staticmethod
    def get_empty_cache_for_benchmark() -> Any:
        """Return a tensor larger than the caches, to write over between runs."""
        import torch

        return torch.empty(_BEYOND_CACHES_BYTES, dtype=torch.int8)

    @staticmethod
    def clear_cache(cache: Any) -> None:
        """Write over such a tensor."""
        cache.zero_()


class GPUDriver(CpuDriver):
    """What `isinstance` says of drivers of GPUs."""


class NvidiaDriver(GPUDriver):
    """The NVIDIA GPUs of this machine."""

    utils = _NvidiaFacts()  # type: ignore[assignment]

    @staticmethod
    def is_active() -> bool:
        """Whether there is a GPU that kernels run on."""
        return has_gpu()

    @staticmethod
    def gpu() -> NvidiaTarget | None:
        """Return the current GPU, or the one that is being emulated."""
        return default_target()

    @staticmethod
    def get_current_device() -> int:
        """Return the number of PyTorch's current GPU; 0 where it has none yet."""
        return current_gpu()

    @staticmethod
    def set_current_device(device: int) -> None:
        """Make a GPU PyTorch's current one."""
        import torch

        torch.cuda.set_device(device)

    @classmethod
    def get_current_stream(cls, device: int | None = None) -> int:
        """Return the stream on which PyTorch works."""
        return cuda.current_stream(cls.get_current_device() if device is None else device)

    @classmethod
    def get_active_torch_device(cls) -> Any:
        """Return PyTorch's name for the current GPU."""
        import torch

        return torch.device("cuda", cls.get_current_device())

    @staticmethod
    def get_device_interface() -> Any:
        """Return PyTorch's module about GPUs."""
        import torch

        return torch.cuda

    @classmethod
    def get_empty_cache_for_benchmark(cls) -> Any:
        """Return a tensor larger than the caches, to write over between runs."""
        import torch

        return torch.empty(
            _BEYOND_CACHES_BYTES, dtype=torch.int8, device=cls.get_active_torch_device()
        )


class Backend(NamedTuple):
    """A kind of machine that there are drivers for."""

    driver: type[CpuDriver]


BACKENDS = {"nvidia": Backend(NvidiaDriver), "cpu": Backend(CpuDriver)}


def _named(name: str) -> CpuDriver:
    if name not in BACKENDS:
        raise LaunchError(
            f"TRITON_DEFAULT_BACKEND={name}: there is no such backend",
            hint=f"it is one of {', '.join(BACKENDS)}",
        )
    return BACKENDS[name].driver()


class DriverChoice:
    """`triton.runtime.driver`: `active` is the driver in use, `default` what it is by itself."""

    def __init__(self) -> None:
        self._default: CpuDriver | None = None
        self._set: CpuDriver | None = None

    @property
    def default(self) -> CpuDriver:
        """The GPUs where there are any, else the CPU; found out when first asked for."""
        if self._default is None:
            if named := env.backend():
                self._default = _named(named)
            else:
                self._default = next(b.driver() for b in BACKENDS.values() if b.driver.is_active())
        return self._default

    @property
    def active(self) -> CpuDriver:
        """What host code is told about."""
        return self._set if self._set is not None else self.default

    def set_active(self, driver: CpuDriver) -> None:
        """Tell host code about another driver; kernels still run where their arrays are."""
        self._set = driver
        target_info.answer_hosts(getattr(driver, "gpu", default_target))

    def reset_active(self) -> None:
        """Go back to the default."""
        self._set = None
        target_info.answer_hosts(default_target)


driver = DriverChoice()


def max_shared_mem(device: int) -> int:
    """Return the bytes of shared memory that a block on a GPU may have; 0 on the CPU."""
    return driver.active.utils.get_device_properties(device)["max_shared_mem"]

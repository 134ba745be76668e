"""`triton.runtime._allocation`: what kernels get memory from; here they need none."""

from contextvars import ContextVar

from tilewright.errors import LaunchError
from tilewright.runtime.host_functions import set_allocator

__all__ = ["NullAllocator", "set_allocator"]


class NullAllocator:
    """What there is before `set_allocator`; no kernel calls it, or any other."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> object:
        """Raise `LaunchError`."""
        raise LaunchError(f"{size} bytes of memory are asked for, and kernels need none")


# Programs look here for whether one is set.
_NONE = NullAllocator()
_allocator: ContextVar[NullAllocator] = ContextVar("allocator", default=_NONE)

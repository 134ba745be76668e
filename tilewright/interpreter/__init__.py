"""Reference execution of the tile IR with NumPy. The ops carry the meaning; this carries values."""

from tilewright.interpreter.machine import (
    FIRST_PAGE_BYTES,
    Interpreter,
    MemoryRegion,
    interpret,
)

__all__ = ["FIRST_PAGE_BYTES", "Interpreter", "MemoryRegion", "interpret"]

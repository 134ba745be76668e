"""Reference execution of the tile IR with NumPy. The ops carry the meaning; this carries values."""

from tilewright.interpreter.machine import Interpreter, MemoryRegion, interpret

__all__ = ["Interpreter", "MemoryRegion", "interpret"]

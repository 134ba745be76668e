"""`triton.runtime.interpreter`: kernels that run as ordinary Python."""

from tilewright.alias.interpreted import InterpretedFunction
from tilewright.errors import TilewrightError as InterpreterError

__all__ = ["InterpretedFunction", "InterpreterError"]

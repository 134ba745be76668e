"""`triton.runtime.interpreter`: kernels that run as ordinary Python."""

from tilewright.alias.kinds import InterpretedFunction
from tilewright.errors import TilewrightError as InterpreterError

__all__ = ["InterpretedFunction", "InterpreterError"]

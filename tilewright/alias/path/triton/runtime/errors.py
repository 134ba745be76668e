"""`triton.runtime.errors`: what a launch raises."""

from tilewright.errors import InternalError as PTXASError
from tilewright.errors import LaunchError as AutotunerError
from tilewright.errors import TilewrightError as InterpreterError
from tilewright.errors import TilewrightError as TritonError
from tilewright.errors import Unsupported as OutOfResources

__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError", "TritonError"]

"""`triton.compiler.errors`: what is wrong with a kernel."""

from tilewright.errors import CompileError as CompilationError
from tilewright.errors import CompileError as UnsupportedLanguageConstruct
from tilewright.errors import CompileTimeAssertionFailure

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"]

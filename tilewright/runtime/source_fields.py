"""What Triton's kernels tell of their source, for programs that write kernels of kernels."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from tilewright.frontend.function import KernelFunction
from tilewright.locks import cached_property

__all__ = ["SourceFields"]


class SourceFields(KernelFunction):
    """The text of a kernel, its place and the names it sees, under Triton's names.

    A program may set them on a kernel that it has made, to those of the one it was made of.
    """

    @cached_property
    def raw_src(self) -> list[str]:
        """The lines from `def` on, as they are in the file."""
        return self.source.text.splitlines(keepends=True)

    @cached_property
    def starting_line_number(self) -> int:
        """The line of the `def` in the file."""
        return self.first_line

    @cached_property
    def def_file_line_number(self) -> int:
        """The same, as newer Tritons name it."""
        return self.first_line

    @cached_property
    def def_file_col_number(self) -> int:
        """The column of the `def`."""
        return self.location.column

    @cached_property
    def file_name(self) -> str:
        """The file, as an absolute path."""
        return self.file

    @property
    def module(self) -> str:
        """The name of the module that the kernel is defined in."""
        return str(self.__module__)

    def get_capture_scope(self) -> dict[str, Any]:
        """Return what the body may read from outside: globals, and variables around the `def`."""
        return {**self.fn.__globals__, **inspect.getclosurevars(self.fn).nonlocals}

    def parse(self) -> ast.Module:
        """Return a syntax tree of the source."""
        return ast.parse(self.src)

    def is_gluon(self) -> bool:
        """Return False: the language of layouts is not there."""
        return False

"""Machine code in memory, as far as our own linker gets: without LLVM."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod

from tilewright.codegen import elf
from tilewright.codegen.host import process
from tilewright.errors import InternalError

__all__ = ["LoadedObject", "find_in_process", "link_object"]


class LoadedObject(ABC):
    """Machine code in memory. Its addresses hold as long as this Python object lives."""

    @abstractmethod
    def address(self, symbol: str) -> int:
        """Return the address of a function or of a variable."""


class _LinkedObject(LoadedObject):
    """An object placed by our own linker."""

    def __init__(self, image: elf.Image) -> None:
        self._image = image

    def address(self, symbol: str) -> int:
        try:
            return self._image.addresses[symbol]
        except KeyError:
            raise InternalError(f"cannot link {symbol!r}: the object does not define it") from None


def link_object(object_bytes: bytes) -> LoadedObject | None:
    """Load an object, or return None where only LLVM can.

    Names that it does not define are looked up in the process (libc, libm, the Python C API).
    Raises `InternalError` for a name that is not found.
    """
    try:
        return _LinkedObject(elf.link(object_bytes, find_in_process))
    except elf.Refused:
        return None
    except LookupError as error:
        raise InternalError(f"cannot link an object: {error} is not defined") from error


def find_in_process(name: str) -> int | None:
    """Return the address of a name that is linked into this process."""
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(process(), name))
    except ValueError:
        return None

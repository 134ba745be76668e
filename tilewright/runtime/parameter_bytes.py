"""The values of a kernel's parameters as they lie in memory, on every target."""

from __future__ import annotations

import numpy as np

from tilewright.ir.types import PointerType
from tilewright.runtime.arguments import Argument

__all__ = ["parameter_bytes"]


def parameter_bytes(argument: Argument) -> bytes:
    """Return the bytes of an address, or of a number of the parameter's type, lowest first."""
    element, value = argument.specialization.element, argument.value
    if element is None or isinstance(element, PointerType):
        return int(value).to_bytes(8, "little")
    if element.is_floating():
        with np.errstate(over="ignore"):  # what is too large is infinite
            rounded: bytes = np.asarray(value).astype(element.numpy).tobytes()
        return rounded
    return (int(value) % (1 << element.storage_bits)).to_bytes(element.itemsize, "little")

"""Arrays of a GPU in this machine's memory for a while, for executors that run here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tilewright.errors import LaunchError
from tilewright.runtime.arguments import Argument, require_memory
from tilewright.runtime.cuda import device
from tilewright.runtime.device_array import DeviceBytes

__all__ = ["on_host"]

Copies: TypeAlias = dict[tuple[int, int], tuple[DeviceBytes, "np.ndarray[Any, Any]"]]


@contextlib.contextmanager
def on_host(arguments: Sequence[Argument]) -> Iterator[list[Argument]]:
    """Copy the memory of arrays here, give arguments that point to it, and copy it back.

    Arrays that share memory do so here too. Raises `LaunchError` for an array of unknown extent.
    """
    copies: Copies = {}
    yield [_moved(argument, copies) for argument in arguments]
    for there, here in copies.values():
        there.take(here)


def _moved(argument: Argument, copies: Copies) -> Argument:
    items = tuple(_moved(item, copies) for item in argument.items)
    view = argument.view
    if view is None or view.gpu is None:
        return replace(argument, items=items)
    require_memory(argument)
    extent = view.extent
    if extent is None:
        raise LaunchError(
            f"`{argument.name}`: how large the memory of the {type(view.array).__name__} is is not "
            "known, so it cannot be copied to run here",
            hint="pass a copy in this machine's memory",
        )
    if extent not in copies:
        there = DeviceBytes(device(view.gpu), *extent)
        here = np.empty(there.size, np.uint8)
        there.give(here)
        copies[extent] = there, here
    here = copies[extent][1]
    address = here.ctypes.data + view.address - extent[0]
    view = replace(view, address=address, gpu=None, bounds=(here.ctypes.data, here.size))
    return replace(argument, value=address, view=view, items=items)

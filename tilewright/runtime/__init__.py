"""Devices, launches and caches: what happens when a compiled kernel runs."""

from typing import TYPE_CHECKING, Any

from tilewright.spelling import unknown_name

_ABSENT = {
    "driver": "`tilewright.get_num_threads()` is how many programs the CPU runs at a time",
}

if not TYPE_CHECKING:  # where types are checked, a name that is not there is an error

    def __getattr__(name: str) -> Any:
        raise unknown_name("tilewright.runtime", name, (), _ABSENT)

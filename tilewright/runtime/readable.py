"""What a user sees of an error in a launch: the frames that are theirs, and a hint at arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tilewright import env
from tilewright.errors import CompileError, InternalError, TilewrightError

__all__ = ["ReadableErrors"]

_PACKAGE = f"{Path(__file__).resolve().parent.parent}{os.sep}"
_LIBRARY = f"{_PACKAGE}kernels{os.sep}"


class ReadableErrors:
    """Surrounds a launch: leaves our frames out of the tracebacks of errors that are the user's.

    All frames stay in an `InternalError`, and where the environment asks for them. `names` and
    `values` are the arguments of the launch.
    """

    __slots__ = ("_names", "_values")

    def __init__(self, names: Sequence[str] = (), values: Sequence[Any] = ()) -> None:
        self._names = names
        self._values = values

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, TilewrightError) or isinstance(error, InternalError):
            return
        if isinstance(error, CompileError):
            self._explain_scalars(error)
        if env.debug_level() < 1 and not env.shows_all_frames():
            error.__traceback__ = _users_frames(traceback)
            error.__suppress_context__ = True

    def _explain_scalars(self, error: CompileError) -> None:
        """Say what to do about an array of no axes that the kernel uses as a number."""
        names = [
            name
            for name, value in zip(self._names, self._values, strict=False)
            if _has_no_axes(value)
        ]
        if names and "pointer" in error.message:
            error.hint = (
                f"`{names[0]}` is an array, of no axes, and so a pointer in the kernel: "
                f"pass its number, `{names[0]}.item()`"
            )


def _has_no_axes(value: Any) -> bool:
    return not isinstance(value, np.generic) and getattr(value, "shape", None) == ()


def _users_frames(traceback: TracebackType | None) -> TracebackType | None:
    places = []
    while traceback is not None:
        if not _is_ours(traceback.tb_frame.f_code.co_filename):
            places.append((traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for frame, instruction, line in reversed(places):
        kept = TracebackType(kept, frame, instruction, line)
    return kept


def _is_ours(file: str) -> bool:
    return file == "<launch>" or (file.startswith(_PACKAGE) and not file.startswith(_LIBRARY))

"""The launch option `ir_override`: a file in place of what a kernel compiles to."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tilewright.errors import LaunchError

__all__ = ["Override", "read_override"]

# The stages that may be replaced, by the end of the file's name.
_STAGES = {".source": "source", ".tir": "tir", ".ttir": "tir", ".ptx": "ptx"}


class Override(NamedTuple):
    """The text of a stage, as `kernel.asm` has it, and where it is from."""

    stage: str
    path: str
    text: str


def read_override(path: str | None) -> Override | None:
    """Read the file that a launch names, None where it names none.

    Raises `LaunchError` for one that is no text of a stage.
    """
    if not path:
        return None
    stage = _STAGES.get(Path(path).suffix)
    if stage is None:
        raise LaunchError(
            f"ir_override={path!r}: the stage is not known",
            hint=f"the name of the file ends in {', '.join(_STAGES)}; "
            'kernel.asm["ttir"] and kernel.asm["ptx"] have what may stand there',
        )
    try:
        return Override(stage, path, Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LaunchError(
            f"ir_override={path!r}: {error}", hint="name a file that can be read, as UTF-8"
        ) from error

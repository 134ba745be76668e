"""Running a user's file as Python would."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import TracebackType

from tilewright import alias

__all__ = ["alias_for_files", "become_program", "output_on_stderr", "run_script"]

_STDOUT, _STDERR = 1, 2


def become_program(arguments: Sequence[str]) -> int:
    """Run `file arguments...` or `-m module arguments...` as `python` would, with the alias first.

    Returns the exit status where the program does not end the process itself.
    """
    is_module = arguments[0] == "-m"
    name, *_ = rest = arguments[1:] if is_module else arguments
    if not is_module and not os.path.exists(name):  # noqa: PTH110 - it may be no path at all
        print(f"tilewright: there is no file {name}", file=sys.stderr)
        return 2
    if not sys.flags.safe_path:
        # What Python put there is where the command lies.
        sys.path[0] = str(Path.cwd() if is_module else Path(name).resolve().parent)
    sys.argv = list(rest)
    alias.install()
    try:
        if is_module:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(name, run_name="__main__")
    except Exception as error:  # noqa: BLE001 - the user's program may raise anything
        frames = _without_ours(error.__traceback__)
        if frames is None and isinstance(error, ImportError):  # nothing of the program has run
            print(f"tilewright: {error}", file=sys.stderr)
            return 1
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        return 1
    return 0


@contextmanager
def output_on_stderr() -> Iterator[None]:
    """Let what is printed inside go to stderr, what other processes print there included."""
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


@contextmanager
def alias_for_files() -> Iterator[None]:
    """Let the files that a command runs find Tilewright as `triton`, and put that back after."""
    # Where the calling process has a `triton`, whichever it is, files get that one.
    if alias.is_installed() or "triton" in sys.modules:
        yield
        return
    alias.install()
    try:
        yield
    finally:
        alias.uninstall()


def run_script(file: Path, arguments: Sequence[str]) -> str:
    """Run a file as the main program; return how it failed, "" if it did not."""
    before_path, before_arguments = list(sys.path), list(sys.argv)
    sys.path.insert(0, str(file.resolve().parent))
    sys.argv = [str(file), *arguments]
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as error:
        return "" if error.code in {None, 0} else f"{file} ended with {error.code!r}"
    except Exception as error:  # noqa: BLE001 - the user's program may raise anything
        frames = _without_ours(error.__traceback__)
        return "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    finally:
        sys.path[:], sys.argv[:] = before_path, before_arguments
    return ""


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of whoever runs the file."""
    while frames is not None and frames.tb_frame.f_code.co_filename in {__file__, runpy.__file__}:
        frames = frames.tb_next
    while frames is not None and "runpy" in frames.tb_frame.f_code.co_filename:
        frames = frames.tb_next
    return frames

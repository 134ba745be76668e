"""The disk cache: compiled kernels and tuning results, one file each, shared by many processes.

A file is a first line with a checksum, a header (by `marshal`: of all formats it takes the least
time, and nothing has to be imported) and the bytes of an object. It is written under a temporary
name and renamed, so a reader sees a whole file or none, on network file systems
too. Nothing is ever locked. Whatever is wrong with a file or with the directory costs a compile,
never an error.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import marshal
import os
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tilewright import env

__all__ = [
    "Entry",
    "digest",
    "entry_files",
    "entry_name",
    "entry_path",
    "read_entry",
    "write_entry",
    "write_whole",
]

_MAGIC = b"tilewright-3"
# What every Python reads.
_MARSHAL_VERSION = 4

# What a rename may answer while other processes write, or clear, the same directory.
_PASSING = frozenset(
    number
    for name in ("EBUSY", "ENOENT", "ESTALE", "EACCES", "EEXIST", "ENOTEMPTY", "ETXTBSY")
    if (number := getattr(errno, name, None)) is not None
)
# But these may also mean that the directory is of no use at all: they are tried only once more.
_ATTEMPTS = 2
_MOST_OF_NAME = 60

_numbers = itertools.count()


class Entry(NamedTuple):
    """What one file holds."""

    header: dict[str, Any]
    payload: bytes


# ---- keys -----------------------------------------------------------------------------------


def digest(parts: Iterable[str]) -> str:
    """Return the name that stands for these texts, in this order."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(b"%d:" % len(data))
        hasher.update(data)
    return hasher.hexdigest()


# ---- files ----------------------------------------------------------------------------------


def read_entry(name: str) -> Entry | None:
    """Return the entry of this name, or None where there is no whole one."""
    try:
        data = entry_path(name).read_bytes()
        first, _, rest = data.partition(b"\n")
        magic, checksum, header_size = first.split()
        if magic != _MAGIC or checksum.decode() != hashlib.sha256(rest).hexdigest():
            return None
        size = int(header_size)
        # Who can write here can write machine code, so `marshal` opens no door.
        return Entry(marshal.loads(rest[:size]), rest[size:])  # noqa: S302
    except (OSError, ValueError, EOFError, TypeError):
        return None


def write_entry(name: str, header: dict[str, Any], payload: bytes = b"") -> None:
    """Keep an entry, if that is possible; otherwise warn, once in a process."""
    head = marshal.dumps(dict(sorted(header.items())), _MARSHAL_VERSION)
    rest = head + payload
    checksum = hashlib.sha256(rest).hexdigest().encode()
    data = b"%b %b %d\n%b" % (_MAGIC, checksum, len(head), rest)
    for attempt in range(_ATTEMPTS):
        try:
            write_whole(entry_path(name), data)
        except OSError as error:
            if error.errno not in _PASSING:
                _warn(error)
                return
            if attempt + 1 == _ATTEMPTS and not os.access(env.cache_directory(), os.W_OK):
                _warn(error)
        else:
            return


def entry_name(kernel: str, digest: str) -> str:
    """Return the name of an entry: that of the kernel, as far as paths have room, and a digest."""
    return f"{kernel[:_MOST_OF_NAME]}-{digest}"


def entry_files(name: str) -> dict[str, str]:
    """Return the path of an entry by its name as a file; nothing where it is not kept."""
    path = entry_path(name)
    return {path.name: str(path)} if path.exists() else {}


def entry_path(name: str) -> Path:
    """Return where the entry of this name is, or would be."""
    return env.cache_directory() / f"{name}.tilewright"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unique = f"{os.getpid()}-{threading.get_ident()}-{next(_numbers)}"
    temporary = path.with_name(f".{path.name[:80]}.{unique}.tmp")
    # The mode leaves it to the umask whether others share the cache.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)  # noqa: PTH105 - the tests make this call fail
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


class _Warned:
    """Whether the warning about the directory was given."""

    already = False


def _warn(error: OSError) -> None:
    if _Warned.already:
        return
    _Warned.already = True
    warnings.warn(
        f"compiled kernels are not kept: {env.cache_directory()}: {error.strerror or error}. "
        "Set TILEWRIGHT_CACHE_DIR to a directory that can be written.",
        RuntimeWarning,
        stacklevel=2,
    )

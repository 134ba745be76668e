"""Files that programs keep beside compiled kernels, under the names of Triton: a cache of files."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path

from tilewright import env
from tilewright.alias.cache_names import base32
from tilewright.errors import LaunchError, Unsupported
from tilewright.runtime.cache import write_whole

__all__ = ["FileCacheManager", "get_cache_manager"]


class FileCacheManager:
    """The files of one key; another process sees a whole file or none.

    >>> manager = get_cache_manager("00ff")
    >>> path = manager.put("text", "note.txt", binary=False)
    >>> manager.get_file("note.txt") == path, manager.has_file("other.txt")
    (True, False)
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        if override or dump:
            raise Unsupported(
                "compiled code is neither replaced nor written down by this cache",
                hint="`TILEWRIGHT_DUMP=DIR` writes the code of every stage to a directory",
            )
        self.key = key
        self.cache_dir = str(env.cache_directory() / key)
        self.lock_path = str(self._make_path("lock"))

    def _make_path(self, name: str) -> Path:
        return Path(self.cache_dir, name)

    def has_file(self, filename: str) -> bool:
        """Whether there is a file of this name."""
        return self._make_path(filename).exists()

    def get_file(self, filename: str) -> str | None:
        """Return the path of a file, None where it is not there."""
        return str(self._make_path(filename)) if self.has_file(filename) else None

    def put(self, data: str | bytes, filename: str, binary: bool = True) -> str:
        """Keep a file and return its path; a text is written as UTF-8, with `binary` too."""
        write_whole(self._make_path(filename), data.encode() if isinstance(data, str) else data)
        return str(self._make_path(filename))

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the paths of files that belong together, None if one of them is missing."""
        path = self._make_path(f"__grp__{filename}")
        if not path.exists():
            return None
        children: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["child_paths"]
        return children if all(Path(child).exists() for child in children.values()) else None

    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        """Note that files, given as paths by name, belong together."""
        return self.put(json.dumps({"child_paths": dict(group)}), f"__grp__{filename}")


def get_cache_manager(key: str) -> FileCacheManager:
    """Return the files of a key in hexadecimal digits.

    `TRITON_CACHE_MANAGER=module:Class` in the environment names another class for them. Compiled
    kernels are not among them: what keeps those is `tilewright.runtime.cache`.
    """
    named = env.cache_manager()
    if not named:
        return FileCacheManager(base32(key))
    module, _, name = named.partition(":")
    try:
        manager: type[FileCacheManager] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LaunchError(
            f"TRITON_CACHE_MANAGER={named}: {error}",
            hint="write TRITON_CACHE_MANAGER=module:Class, of a class like FileCacheManager",
        ) from error
    return manager(base32(key))

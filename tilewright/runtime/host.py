"""The facts about this machine, and the loading of objects: by LLVM only where nothing else can.

To import and to start LLVM takes ten times as long as to launch a kernel from the disk cache. So
what LLVM has said about a machine is kept there too. The entry is for one kind of CPU, operating
system and LLVM. It is believed only if Linux confirms each feature in it: code must never use
instructions that the machine lacks.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.codegen.host import architecture, cpu_name, this_process
from tilewright.codegen.loading import LoadedObject, link_object
from tilewright.runtime.cache import digest, read_entry, write_entry
from tilewright.runtime.deferred import Deferred
from tilewright.target import Host

if TYPE_CHECKING:
    from tilewright.codegen import llvm
else:
    llvm = Deferred("tilewright.codegen.llvm")

__all__ = ["compiler_version", "host", "load_object"]

_CPU_FACTS = Path("/proc/cpuinfo")
_IDENTIFYING = frozenset({"vendor_id", "cpu family", "model", "model name", "stepping", "flags"})

# What Linux calls a feature of LLVM's, where it is not the same but for the punctuation.
_FLAGS = {
    "64bit": "lm",
    "bmi": "bmi1",
    "crc32": "sse4_2",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "prfchw": "3dnowprefetch",
    "rdrnd": "rdrand",
    "sahf": "lahf_lm",
    "sha": "sha_ni",
    "sse3": "pni",
}
# Linux does not list these everywhere, and LLVM generates them only where the IR asks for them.
_UNLISTED = frozenset(
    {
        *("enqcmd", "hreset", "invpcid", "kl", "pconfig", "prefetchi", "ptwrite", "rdpru", "sgx"),
        *("shstk", "uintr", "widekl"),
    }
)
_NO_PUNCTUATION = str.maketrans("", "", "_-.")


@functools.cache
def host() -> Host:
    """Return the facts about this machine, found out once.

    Raises `Unsupported` on architectures other than x86-64 and AArch64.
    """
    identity_of_cpu, flags = _read_cpu()
    if not flags:
        return llvm.host()
    identity = f"{identity_of_cpu};{os.uname().release};{compiler_version()}"
    name = f"host-{digest([identity])}"
    entry = read_entry(name)
    known = None if entry is None else _believed(entry.header, identity, flags)
    if known is not None:
        return known
    asked = llvm.host()
    header = {
        "identity": identity,
        "triple": asked.triple,
        "data_layout": asked.data_layout,
        "features": ",".join(sorted(asked.features)),
        "missing_features": ",".join(sorted(asked.missing_features)),
    }
    if entry is None or entry.header != header:
        write_entry(name, header)
    return asked


def load_object(object_bytes: bytes) -> LoadedObject:
    """Load an object that LLVM has made, in this process or in an earlier one.

    Raises `InternalError` for a damaged object and, now or when an address is asked for, for a name
    that is not found.
    """
    return link_object(object_bytes) or llvm.load_object(object_bytes)


@functools.cache
def compiler_version() -> str:
    """Return a text that differs where llvmlite or its LLVM does."""
    spec = PathFinder.find_spec("llvmlite")
    try:
        package = Path((spec and spec.origin) or "").parent
        text = (package / "_version.py").read_text(encoding="utf-8")
        with os.scandir(package / "binding") as entries:
            sizes = [str(e.stat().st_size) for e in entries if e.name.startswith("libllvmlite.")]
    except OSError:
        sizes = []
    return digest([text, *sizes]) if sizes else llvm.version()


def _read_cpu() -> tuple[str, frozenset[str]]:
    """Return what Linux says about the kind of CPU, and its flags.

    There are none where LLVM is needed anyway, or the text is another one.
    """
    if not sys.platform.startswith("linux") or architecture() != "x86_64":
        return "", frozenset()
    text = b""
    try:
        # One core's part: the whole takes long where there are hundreds of them.
        with _CPU_FACTS.open("rb", buffering=0) as file:
            while b"\n\n" not in text and (more := file.read(4096)):
                text += more
    except OSError:
        return "", frozenset()
    pairs = [
        line.partition(":") for line in text.decode(errors="replace").split("\n\n")[0].split("\n")
    ]
    facts = {key.strip(): value.strip() for key, _, value in pairs if key.strip() in _IDENTIFYING}
    flags = frozenset(facts.get("flags", "").split())
    return repr(sorted(facts.items())), flags


def _believed(header: dict[str, Any], identity: str, flags: frozenset[str]) -> Host | None:
    """Return the host that an entry describes, or None where it is not this machine."""
    try:
        triple, data_layout = header["triple"], header["data_layout"]
        features = frozenset(header["features"].split(","))
        missing_features = frozenset(header["missing_features"].split(","))
    except (KeyError, TypeError, AttributeError):
        return None
    spelled = {_without_punctuation(flag) for flag in flags}
    expected = (_without_punctuation(_FLAGS.get(f, f)) for f in features - _UNLISTED)
    if header.get("identity") != identity or not spelled.issuperset(expected):
        return None
    return this_process(triple, data_layout, cpu_name(features), features, missing_features)


def _without_punctuation(name: str) -> str:
    return name.translate(_NO_PUNCTUATION)

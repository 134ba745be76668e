"""Which source line an instruction comes from: LLVM's debug metadata, and `.loc` in the PTX.

LLVM writes no calls into its `.loc` lines. So the metadata has one line number for each place
together with the calls that led to it, and the PTX that comes out gets the real ones: for a place
inside a called function, one `.loc` for each call and one for the place itself.
"""

from __future__ import annotations

import re

from tilewright import env
from tilewright.errors import Location

__all__ = ["LineTable"]

# Metadata of a module is numbered: these, and one for each place behind them.
_HEAD = """\
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!1}
!0 = distinct !DICompileUnit(language: DW_LANG_Python, file: !2, emissionKind: DebugDirectivesOnly)
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !DIFile(filename: "places", directory: "/")
!3 = distinct !DISubprogram(name: "kernel", file: !2, unit: !0, type: !4, spFlags: 8)
!4 = !DISubroutineType(types: !5)
!5 = !{null}
"""
_FIRST = 6


class LineTable:
    """The places of one kernel, which starts at `start`."""

    attribute = "!dbg !3"

    def __init__(self, start: Location | None) -> None:
        self._start = start
        self._numbers: dict[Location, int] = {}
        # Found by identity first: hashing a place and its callers for each instruction is slow.
        self._marks: dict[int, tuple[Location, str]] = {}

    def mark(self, location: Location) -> str:
        """Return the metadata of an instruction of a place."""
        known = self._marks.get(id(location))
        if known is None:
            number = self._numbers.setdefault(location, _FIRST + len(self._numbers))
            known = self._marks[id(location)] = (location, f", !dbg !{number}")
        return known[1]

    def metadata(self) -> str:
        """Return the metadata of the module."""
        places = [
            f"!{number} = !DILocation(line: {number}, scope: !3) ; {_chain(location)}"
            for location, number in self._numbers.items()
        ]
        return _HEAD + "\n".join(places)

    def resolve(self, ptx: str) -> str:
        """Return the PTX with the lines of the user's files."""
        places = {number: location for location, number in self._numbers.items()}
        text, is_wanted = _Directives(), env.has_line_numbers()

        def directive(match: re.Match[str]) -> str:
            # Where LLVM has merged instructions of different places there is no number.
            location = places.get(int(match[1]), self._start)
            return "" if location is None or not is_wanted else text.of(location)

        ptx = re.sub(r"^[ \t]*\.loc[ \t]+\d+[ \t]+(\d+).*\n", directive, ptx, flags=re.MULTILINE)
        ptx = re.sub(r"^[ \t]*\.(file|section)[ \t].*\n", "", ptx, flags=re.MULTILINE)
        return ptx + text.files_and_names()


def _chain(location: Location) -> str:
    text = str(location)
    while location.caller is not None:
        location = location.caller
        text += f", called from {location}"
    return text


class _Directives:
    """Writes `.loc` lines, and what they refer to."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._names: dict[str, int] = {}

    def of(self, location: Location) -> str:
        """Return the directives of a place, from the outermost call inwards."""
        place = f"{self._file(location)} {location.line} {location.column + 1}"
        caller = location.caller
        if caller is None:
            return f"\t.loc\t{place}\n"
        name = self._names.setdefault(location.function, len(self._names))
        call = f"{self._file(caller)} {caller.line} {caller.column + 1}"
        inner = f"\t.loc\t{place}, function_name $function{name}, inlined_at {call}\n"
        return self.of(caller) + inner

    def _file(self, location: Location) -> int:
        return self._files.setdefault(location.file, len(self._files) + 1)

    def files_and_names(self) -> str:
        lines = [f'.file {number} "{_quoted(file)}"' for file, number in self._files.items()]
        if self._names:
            lines += [".section .debug_str", "{"]
            for name, number in self._names.items():
                characters = ", ".join(map(str, [*name.encode(), 0]))
                lines += [f"$function{number}:", f".b8 {characters}"]
            lines.append("}")
        return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')

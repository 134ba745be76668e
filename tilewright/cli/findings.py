"""What came of emulated launches, gathered by kernel and source line."""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tilewright.emulator import Finding, LineCounts
from tilewright.errors import Location, TilewrightError
from tilewright.runtime.emulated import Emulation

__all__ = ["Problem", "Summary", "summarise"]

_WASTEFUL = 1.5  # sectors, or wavefronts, for one that would do
_OUT_OF_BOUNDS, _ASSERTION, _ERROR = "out of bounds", "failed assertion", "error"

_CLEAN = """\
no race in shared memory, no access out of bounds, no shared memory read that was not written
(races between programs in global memory are not looked for)"""
_ENDED = """\
a launch ends at an access out of bounds, and at an error: what it had not stored by then is missing
from what the program computes"""

_NOTHING = """\
no kernel was launched on the emulated GPU, so there is nothing to check
(what runs as Python, by `kernel.debug` or TILEWRIGHT_INTERPRET=1, is not emulated)"""
_ELSEWHERE = """\
launches in blocks of `tilewright.emulate` of the program's own look for what these ask for, and are
not part of this report"""


@dataclass
class Problem:
    """Something wrong with a kernel, at a line; `other` is the access that it collides with."""

    kernel: str
    kind: str
    message: str
    location: Location | None
    other: Location | None = None
    count: int = 1

    def __str__(self) -> str:
        first, *rest = self.message.splitlines()
        where = f"{self.location}: " if self.location is not None else ""
        lines = [f"{where}{self.kind} in {self.kernel}: {first}", *_excerpt(self.location)]
        lines += [f"  {line.strip()}" for line in rest]
        if self.other is not None:
            lines += [f"  the other access: {self.other}", *_excerpt(self.other)]
        if self.count > 1:
            lines.append(f"  seen {self.count} times")
        return "\n".join(lines)

    @property
    def ends_launch(self) -> bool:
        """Whether the launch went no further."""
        return self.kind in {_OUT_OF_BOUNDS, _ERROR}

    def data(self) -> dict[str, Any]:
        """The problem as JSON has it."""
        return {
            "kernel": self.kernel,
            "kind": self.kind,
            "message": self.message,
            "at": _place(self.location),
            "other": _place(self.other),
            "count": self.count,
        }


@dataclass
class Traffic:
    """What a line of a kernel costs in memory accesses."""

    kernel: str
    counts: LineCounts

    @property
    def is_wasteful(self) -> bool:
        """Whether it takes notably more than its accesses need."""
        counts = self.counts
        return (
            counts.sectors > _WASTEFUL * counts.ideal_sectors
            or counts.wavefronts > _WASTEFUL * counts.ideal_wavefronts
        )

    def __str__(self) -> str:
        mark = "!" if self.is_wasteful else " "
        return f"{mark} {self.counts}"

    def data(self) -> dict[str, Any]:
        """The counts as JSON has them."""
        counts = asdict(self.counts)
        del counts["location"]
        return {
            "kernel": self.kernel,
            "at": _place(self.counts.location),
            **counts,
            "wasteful": self.is_wasteful,
        }


@dataclass
class Summary:
    """All launches of a program. `str()` is the report.

    `elsewhere` has those in blocks of `tilewright.emulate` of its own, which are not looked at.
    """

    target: str
    launches: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    findings: list[Problem] = field(default_factory=list)
    lines: list[Traffic] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"launches on an emulated {self.target}: {_names(self.launches)}"]
        if not self.launches:
            parts = [_NOTHING]
        if self.elsewhere:
            parts.append(f"{_ELSEWHERE}: {_names(self.elsewhere)}")
        if not self.launches:
            return "\n\n".join(parts)
        parts += map(str, self.findings)
        if not self.findings:
            parts.append(_CLEAN)
        if any(problem.ends_launch for problem in self.findings):
            parts.append(_ENDED)
        for kernel in self.launches:
            lines = [str(line) for line in self.lines if line.kernel == kernel]
            if lines:
                parts.append("\n".join([f"memory accesses of {kernel}:", *lines]))
        return "\n\n".join(parts)

    def data(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "target": self.target,
            "launches": dict(self.launches),
            "elsewhere": dict(self.elsewhere),
            "findings": [problem.data() for problem in self.findings],
            "lines": [line.data() for line in self.lines],
        }


def summarise(emulation: Emulation) -> Summary:
    """Gather the findings, failures and counts of all launches."""
    counts = Counter(emulation.counts), Counter(emulation.elsewhere)
    summary = Summary(emulation.target.architecture, *counts)
    problems: dict[tuple[Any, ...], Problem] = {}
    for kernel, report in emulation.launches:
        for finding in report.findings:
            _add(problems, _of_finding(kernel.name, finding))
    for kernel, error in emulation.failures:
        _add(problems, _of_error(kernel.name, error))
    summary.findings = list(problems.values())
    totals: dict[tuple[str, str], LineCounts] = {}
    for kernel, report in emulation.launches:
        for line in report.lines:
            key = kernel.name, line.place
            totals[key] = line if key not in totals else totals[key].plus(line)
    summary.lines = [Traffic(kernel, counts) for (kernel, _), counts in totals.items()]
    return summary


def _names(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def _add(problems: dict[tuple[Any, ...], Problem], problem: Problem) -> None:
    key = (problem.kernel, problem.kind, problem.location, problem.other)
    if key in problems:
        problems[key].count += problem.count
    else:
        problems[key] = problem


def _of_finding(kernel: str, finding: Finding) -> Problem:
    other = finding.other.location() if finding.other is not None else None
    place = finding.instruction.location()
    message = finding.message
    if place is None:
        message += f"\n{finding.instruction.place()}"
    return Problem(kernel, finding.kind, message, place, other, finding.count)


def _of_error(kernel: str, error: TilewrightError) -> Problem:
    message = error.message.removeprefix(f"{kernel}: ")
    kind, _, rest = message.partition(": ")
    if kind == "device-side assert":
        return Problem(kernel, _ASSERTION, rest, error.location)
    kind = _OUT_OF_BOUNDS if message.startswith("out-of-bounds") else _ERROR
    return Problem(kernel, kind, message, error.location)


def _place(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return {"file": location.file, "line": location.line, "column": location.column + 1}


def _excerpt(location: Location | None) -> list[str]:
    """The source line with carets below what is meant."""
    if location is None:
        return []
    spanned = location if location.end_column is not None else _with_end(location)
    text = spanned.excerpt()
    return [text] if text else []


def _with_end(location: Location) -> Location:
    """Add where the expression ends that begins at a place."""
    source = "".join(linecache.getlines(location.file))
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return location
    ends = [
        (node.end_col_offset or 0) if node.end_lineno == node.lineno else len(
            linecache.getline(location.file, location.line).rstrip()
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.expr)
        and (node.lineno, node.col_offset) == (location.line, location.column)
    ]  # fmt: skip
    return replace(location, end_column=max(ends, default=None))

"""What a launch tells: findings, counts for each source line, and the kernel's output."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.program import Instruction
from tilewright.errors import Location

__all__ = ["Finding", "LineCounts", "Report"]


@dataclass
class Finding:
    """Something that is wrong, at an instruction; `count` is how often it was seen."""

    kind: str
    message: str
    instruction: Instruction
    other: Instruction | None = None
    count: int = 1

    def __str__(self) -> str:
        text = f"{self.kind}: {self.message}\n    {self.instruction.place()}"
        if self.other is not None:
            text += f"\n    against {self.other.place()}"
        return text + (f"\n    seen {self.count} times" if self.count > 1 else "")


@dataclass
class LineCounts:
    """Memory traffic of a source line (or of a line of PTX where there is no source line)."""

    place: str
    location: Location | None = None
    shared_accesses: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    global_accesses: int = 0
    sectors: int = 0
    ideal_sectors: int = 0

    def plus(self, other: LineCounts) -> LineCounts:
        """Return the counts of both, which are of the same line."""
        names = [item.name for item in fields(self) if item.name not in {"place", "location"}]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, **sums)

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts more than the widths of the accesses need."""
        return self.wavefronts - self.ideal_wavefronts

    def __str__(self) -> str:
        parts = []
        if self.shared_accesses:
            parts.append(
                f"{self.shared_accesses} shared accesses, {self.wavefronts} wavefronts "
                f"({self.bank_conflicts} by bank conflicts)"
            )
        if self.global_accesses:
            parts.append(
                f"{self.global_accesses} global accesses, {self.sectors} sectors of 32 bytes "
                f"(ideal {self.ideal_sectors})"
            )
        return f"{self.place}: " + "; ".join(parts)


@dataclass
class Report:
    """The result of a launch. `str()` gives readable text."""

    kernel: str
    findings: list[Finding] = field(default_factory=list)
    lines: list[LineCounts] = field(default_factory=list)
    output: str = ""
    variables: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    """The bytes of the module's variables in global memory, after the launch."""
    instructions: int = 0
    thread_instructions: int = 0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def bank_conflicts(self) -> int:
        """Bank conflicts of all lines."""
        return sum(line.bank_conflicts for line in self.lines)

    @property
    def sectors(self) -> int:
        """Sectors of all lines."""
        return sum(line.sectors for line in self.lines)

    def __str__(self) -> str:
        rate = self.thread_instructions / max(self.seconds, 1e-9)
        head = (
            f"`{self.kernel}`: {self.thread_instructions} instructions of threads in "
            f"{self.seconds:.2f} s ({rate / 1e6:.1f} million a second)"
        )
        found = [str(finding) for finding in self.findings] or ["nothing was found"]
        return "\n".join([head, *found, *map(str, self.lines)])

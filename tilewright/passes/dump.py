"""Showing what each pass did: files and a page in a directory, or lines on stderr."""

from __future__ import annotations

import hashlib
import html
import sys
from collections.abc import Mapping
from pathlib import Path

from tilewright.ir.core import Function
from tilewright.ir.printer import to_text
from tilewright.passes.step import Step

__all__ = ["Dump", "Report", "write_code"]

_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>{title}</title>
<style>
  body {{ display: flex; gap: 1rem; margin: 1rem; font-family: sans-serif; }}
  section {{ border-left: 1px solid #bbb; padding-left: 1rem; }}
  pre {{ font-size: 12px; }}
  .unchanged {{ color: #999; }}
</style>
{columns}
"""


def write_code(directory: Path, function: Function, texts: Mapping[str, str]) -> None:
    """Write what a tile function became to `DIR/NAME-HASH/code.KIND`, a file for each kind."""
    own = _own_directory(directory, function.name, to_text(function, locations=True))
    for kind, text in texts.items():
        (own / f"code.{kind}").write_text(text, encoding="utf-8")


def _own_directory(directory: Path, name: str, text: str) -> Path:
    digest = hashlib.sha256(text.encode()).hexdigest()
    own = directory / f"{name}-{digest[:8]}"
    own.mkdir(parents=True, exist_ok=True)
    return own


class Dump:
    """Writes a numbered file for each pass and a page with all of them to `DIR/NAME-HASH`."""

    def __init__(self, directory: Path, function: Function, stage: str) -> None:
        text = to_text(function, locations=True)
        self.directory = _own_directory(directory, function.name, text)
        self.stage = stage
        self.columns: list[str] = []
        self.text = to_text(function)
        self._write(f"{stage}-00-input", self.text, text)

    def __call__(self, step: Step) -> None:
        text = to_text(step.after)
        title = f"{self.stage}-{step.number:02}-{step.name}"
        milliseconds = f"{1000 * step.seconds:.2f} ms"
        if text == self.text:
            self._write(title, f"unchanged, {milliseconds}", "// unchanged\n")
        else:
            self._write(title, f"// {milliseconds}\n{text}", to_text(step.after, locations=True))
        self.text = text

    def _write(self, title: str, shown: str, text: str) -> None:
        (self.directory / f"{title}.ir").write_text(text, encoding="utf-8")
        kind = ' class="unchanged"' if shown.startswith("unchanged") else ""
        self.columns.append(
            f"<section><h2>{title}</h2><pre{kind}>{html.escape(shown)}</pre></section>"
        )
        page = _PAGE.format(title=self.directory.name, columns="\n".join(self.columns))
        (self.directory / f"{self.stage}.html").write_text(page, encoding="utf-8")


class Report:
    """Writes the time of each pass to stderr, and the IR after it with `show_ir`."""

    def __init__(self, *, show_ir: bool) -> None:
        self.show_ir = show_ir

    def __call__(self, step: Step) -> None:
        is_same = step.after is step.before
        change = " (unchanged)" if is_same else ""
        line = f"{step.after.name}: {step.name} {1e3 * step.seconds:.2f} ms{change}\n"
        text = to_text(step.after) if self.show_ir and not is_same else ""
        sys.stderr.write(f"[tilewright] {line}{text}")

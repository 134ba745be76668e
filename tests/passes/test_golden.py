"""One file for each transformation: IR before, IR after. The file is named for its pass."""

from pathlib import Path

import pytest

from tilewright.ir.parser import parse
from tilewright.ir.printer import to_text
from tilewright.ir.verifier import verify
from tilewright.passes.pipeline import PASSES

FILES = sorted((Path(__file__).parent / "golden").glob("*.ir"))


def pass_of(path):
    """The pass that the file's name starts with."""
    (found,) = [p for p in PASSES if path.stem.startswith(p.name)]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden(path, golden):
    def transform(text):
        function = parse(text)
        verify(function)
        result = pass_of(path).function(function)
        verify(result)
        return to_text(result)

    golden(path, transform)


def test_every_pass_has_a_golden_file():
    assert {p.name for p in PASSES} == {pass_of(path).name for path in FILES}

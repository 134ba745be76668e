"""One file for each transformation: IR before, IR after. The file is named for its pass."""

from pathlib import Path

import pytest

from tilewright.ir.parser import parse
from tilewright.ir.printer import to_text
from tilewright.ir.verifier import verify
from tilewright.passes.pipeline import PASSES, PREPARE_FOR_CPU, PREPARE_FOR_GPU
from tilewright.passes.remove_assertions import remove_assertions

FILES = sorted((Path(__file__).parent / "golden").glob("*.ir"))

# A pass that runs twice has a second name, and its function the first.
FUNCTIONS = {p.function for p in (*PASSES, *PREPARE_FOR_CPU, *PREPARE_FOR_GPU)} | {
    remove_assertions
}


def pass_of(path):
    """The pass that the file's name starts with."""
    found = [f for f in FUNCTIONS if path.stem.startswith(f.__name__)]
    return max(found, key=lambda f: len(f.__name__))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden(path, golden):
    def transform(text):
        function = parse(text)
        verify(function)
        result = pass_of(path)(function)
        verify(result)
        return to_text(result)

    golden(path, transform)


def test_every_pass_has_a_golden_file():
    assert {pass_of(path) for path in FILES} == FUNCTIONS

"""Kernels that the fuzzer found, made small: each was at fault once.

`regressions/` holds their texts; what each is about stands in its first line.
"""

from pathlib import Path

import pytest

from tests.fuzz.workers import Worker

KERNELS = sorted((Path(__file__).parent / "regressions").glob("*.py"))


@pytest.fixture(scope="module")
def worker():
    with Worker() as process:
        yield process


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_regression(worker, path):
    outcome = worker.check(path.read_text(encoding="utf-8"), stages=True)
    assert not outcome.is_fault, f"{outcome.kind}\n{outcome.detail}"

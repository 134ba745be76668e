"""Types: the kernel on the first page passes mypy as a user runs it, and mistakes are found."""

import re
import textwrap
from pathlib import Path

import pytest

mypy = pytest.importorskip("mypy.api")

ROOT = Path(__file__).resolve().parent.parent
KERNEL = re.search(
    r"^## A kernel\n+```python\n(.*?)^```$",
    (ROOT / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
LOOPS = """
import tilewright as tw
import tilewright.language as tl


@tw.autotune([tw.Config({"BLOCK": 16})], key=["n"])
@tw.heuristics({"EVEN": lambda arguments: arguments["n"] % 16 == 0})
@tw.jit(debug=True)
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, n, BLOCK, num_stages=2):
        for part in tl.static_range(BLOCK):
            acc += tl.load(x_ptr + start + tl.arange(0, BLOCK)) * part
    for part in range(BLOCK):
        acc += part
    tl.store(out_ptr, tl.histogram(acc.to(tl.int32), BLOCK))
"""


def complaints(source, tmp_path, monkeypatch):
    file = tmp_path / "kernels.py"
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    settings = ["--config-file=", f"--cache-dir={tmp_path / 'mypy'}", "--check-untyped-defs"]
    report, errors, _ = mypy.run([*settings, "--follow-imports=silent", str(file)])
    assert not errors
    return [line for line in report.splitlines() if f"{file.name}:" in line]


@pytest.mark.slow
@pytest.mark.parametrize("source", [KERNEL[1], LOOPS], ids=["first page", "loops"])
def test_kernels_pass_mypy(source, tmp_path, monkeypatch):
    assert complaints(source, tmp_path, monkeypatch) == []


@pytest.mark.slow
def test_mypy_finds_names_that_are_not_there(tmp_path, monkeypatch):
    source = "import tilewright as tw\nimport tilewright.language as tl\ntw.jitt, tl.arrange\n"
    assert len(complaints(source, tmp_path, monkeypatch)) == 2

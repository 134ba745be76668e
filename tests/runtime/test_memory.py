"""What compiled kernels cost in memory while they are kept, and launches."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
    pytest.mark.slow,
]

PRELUDE = """
import gc
import numpy as np
import tilewright as tw
import tilewright.language as tl

array = np.zeros(64, np.float32)

def resident_kilobytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4

@tw.jit
def add_number(x_ptr, NUMBER: tl.constexpr):
    offsets = tl.arange(0, 64)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) + NUMBER)

def growth(make, warm_up, count):
    for number in range(warm_up):
        make(number)
    before = resident_kilobytes()
    for number in range(warm_up, warm_up + count):
        make(number)
    print((resident_kilobytes() - before) / count)
"""

ONE_KERNEL = """
growth(lambda number: add_number[(1,)](array, number), 50, 200)
"""

MANY_KERNELS = """
SOURCE = '''
def add_{0}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * {0}.0, mask=mask)
'''
kept = []

def make(number):
    text = SOURCE.format(number)
    namespace = {"tl": tl}
    exec(text, namespace)
    kernel = tw.jit(source=text)(namespace[f"add_{number}"])
    kernel[(1,)](array, array, 64, BLOCK=64)
    kept.append(kernel)

growth(make, 50, 200)
"""

LAUNCHES = """
growth(lambda number: add_number[(1,)](array, 3), 1000, 10_000)
"""


def run(code, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(PRELUDE + code, encoding="utf-8")
    environment = {"PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_variants_of_one_kernel(tmp_path):
    assert run(ONE_KERNEL, tmp_path) < 16


def test_many_kernels(tmp_path):
    # The function, its namespace and its text are the program's own: some 2 KB of these.
    assert run(MANY_KERNELS, tmp_path) < 24


def test_launches(tmp_path):
    assert run(LAUNCHES, tmp_path) * 10_000 < 256

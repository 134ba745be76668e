"""The table of the GPU benchmarks: marks, and what a measuring process that ends leaves behind."""

import json
import sys

import pytest

pytest.importorskip("torch")

from benchmarks import gpu
from benchmarks.report import mark, summary, table
from benchmarks.workloads.table import all_rows


def result(name="row", ours=None, theirs=None, goal=1.0, floor="", failure="wrong by 1"):
    sides = {
        side: {"rate": rate} if rate else {"failure": failure}
        for side, rate in (("tilewright", ours), ("triton", theirs))
    }
    return {"name": name, "goal": goal, "floor": floor, "unit": "GB/s", "sides": sides}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (result(ours=100, theirs=90), "ok"),
        (result(ours=99, theirs=100), "equal"),
        (result(ours=97, theirs=100), "under"),
        (result(ours=129, theirs=100, goal=1.3), "under"),
        (result(theirs=100), "fails"),
        (result(ours=100), ""),
        (result(ours=100, theirs=90, floor="other"), "under other"),
        (result(ours=100, theirs=90, floor="another"), "ok"),
    ],
)
def test_marks(found, expected):
    others = {"other": result("other", ours=200), "another": result("another", ours=101)}
    assert mark(found, others) == expected


@pytest.mark.parametrize(
    ("ours", "settings", "expected"),
    [
        (5.0, {}, "ok"),
        (11.0, {}, "under"),
        (3.0, {"limit": 3.0}, "ok"),
        (3.1, {"limit": 3.0}, "over"),
    ],
)
def test_marks_of_costs(ours, settings, expected):
    found = {**result(ours=ours, theirs=10.0), "is_cost": True, **settings}
    assert mark(found, {}) == expected


def test_table():
    lines = table([result("a", ours=123.4, theirs=61.7), result("b", theirs=7.25)]).splitlines()
    assert lines[2].split() == ["a", "123", "61.7", "-", "GB/s", "2.00x", "1.00x", "ok"]
    assert lines[3].split() == ["b", "wrong", "7.25", "-", "GB/s", "1.00x", "fails"]


def test_summary():
    found = [
        result("a", ours=400, theirs=100),
        result("b", ours=100, theirs=101),
        result("c", ours=50, theirs=200),
        {**result("d", ours=4.0), "is_cost": True, "limit": 3.0},
        result("e", theirs=100),
    ]
    expected = "1 ok, 1 equal, 2 under, 1 failing, geometric mean of ours/Triton 1.00x"
    assert summary(found) == expected
    assert summary([]) == "0 ok, 0 equal, 0 under, 0 failing"


# What stands in for `benchmarks.measure`: it ends in the middle of the second row.
ENDS = """
import json, sys
for name, left_out in json.loads(sys.argv[1])["rows"]:
    print(json.dumps({"begins": name, "side": "tilewright"}), flush=True)
    if name == NAME and "tilewright" not in left_out:
        sys.exit(7)
    print("a kernel's own output")
    sides = {} if left_out else {"tilewright": {"rate": 1.0}}
    print(json.dumps({"row": {"name": name, "sides": sides}}), flush=True)
"""


def test_a_lost_process_costs_one_side_of_one_row(monkeypatch):
    rows = all_rows()[:3]
    script = ENDS.replace("NAME", repr(rows[1].name))
    start = gpu.subprocess.Popen

    def popen(command, **settings):
        return start([sys.executable, "-c", script, command[-1]], **settings)

    monkeypatch.setattr(gpu.subprocess, "Popen", popen)
    measuring = gpu.Measuring(rows, is_quick=True, deadline=float("inf"))
    results = list(measuring.results())
    assert [found["name"] for found in results] == [row.name for row in rows]
    assert results[1]["sides"] == {"tilewright": {"failure": "ended with status 7", "tried": []}}
    assert results[2]["sides"] == {"tilewright": {"rate": 1.0}}
    json.dumps(results)


def test_a_message_is_shortened_to_its_ends():
    assert gpu.first_line("a\n\n  b\nc\n") == "a ... c"
    assert gpu.first_line("") == ""

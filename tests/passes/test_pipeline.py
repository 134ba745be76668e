"""The driver: order, switches, dumps, and what it says when a pass fails."""

import itertools

import pytest

from tilewright import ops
from tilewright.errors import InternalError, Location, Unsupported
from tilewright.ir.builder import rewrite
from tilewright.ir.core import Block, Function, Param
from tilewright.ir.parser import parse
from tilewright.ir.printer import to_text
from tilewright.ir.types import DTYPES, TileType
from tilewright.passes import pipeline
from tilewright.passes.pipeline import PASSES, PREPARE_FOR_CPU, Pass, optimize, run_passes

TEXT = """\
func @f(%x: i32) {
  %one = full {value=1, of=i32} : i32
  %y = mul %x, %one : i32
  yield %y
}
"""


@pytest.fixture(autouse=True)
def no_switches(monkeypatch):
    for name in ("DUMP", "DEBUG", "VERIFY", "DISABLE"):
        monkeypatch.delenv(f"TILEWRIGHT_{name}", raising=False)


def negation(location=None):
    x = Param(TileType(DTYPES["i32"]), "x")
    op = ops.Neg(x, location=location)
    return Function("f", Block((x,), [op], (op,)))


def failing(error):
    def rule(op, emit):
        raise error

    return Pass("broken", lambda function: rewrite(function, rule))


def test_each_reason_is_a_sentence_on_a_pass_that_ran_before():
    passes = PASSES + PREPARE_FOR_CPU
    for number, step in enumerate(passes):
        earlier = {p.name for p in passes[:number]}
        assert step.after.keys() <= earlier
        assert all(len(why.split()) > 2 for why in step.after.values())


def test_a_wrong_order_is_found():
    first, second = Pass("a", optimize, after={"b": "b makes what a needs"}), Pass("b", optimize)
    pipeline._check_order([second, first])
    with pytest.raises(
        InternalError, match=r"pass a must run once, after b \(b makes what a needs"
    ):
        pipeline._check_order([first, second])
    with pytest.raises(InternalError, match="pass b must run once"):
        pipeline._check_order([second, second])


def test_observers_see_every_step():
    steps = []
    result = optimize(parse(TEXT), observers=[steps.append])
    assert [s.name for s in steps] == [p.name for p in PASSES]
    assert all(a.after is b.before for a, b in itertools.pairwise(steps))
    assert steps[-1].after is result
    assert all(s.seconds >= 0 for s in steps)


def test_passes_can_be_left_out(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DISABLE", "simplify,inline_calls")
    steps = []
    optimize(parse(TEXT), observers=[steps.append])
    names = [s.name for s in steps]
    assert "simplify" not in names
    assert "inline_calls" in names  # the targets rely on it


def test_dumps(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    optimize(parse(TEXT))
    (directory,) = tmp_path.iterdir()
    assert directory.name.startswith("f-")
    texts = {path.name: path.read_text() for path in directory.iterdir()}
    assert texts["optimize-00-input.ir"] == TEXT
    assert texts["optimize-01-inline_calls.ir"] == "// unchanged\n"
    assert "mul" not in texts["optimize-02-simplify.ir"]
    page = texts["optimize.html"]
    assert page.count("<section>") == len(PASSES) + 1
    assert "unchanged" in page


def test_times_and_ir_on_stderr(monkeypatch, capsys):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "4")
    function = optimize(parse(TEXT))
    report = capsys.readouterr().err
    assert "f: inline_calls" in report
    assert "ms (unchanged)" in report
    assert to_text(function) in report


def test_a_failing_pass_is_named_with_op_and_line():
    location = Location("kernel.py", 7, 4)
    with pytest.raises(InternalError) as caught:
        run_passes(negation(location), [failing(ValueError("no such axis"))], "test")
    assert str(caught.value) == (
        "kernel.py:7:5: pass broken failed on f at neg: ValueError: no such axis\n"
        "  try: leave the pass out with TILEWRIGHT_DISABLE=broken"
    )


def test_what_a_target_lacks_is_not_our_fault():
    with pytest.raises(Unsupported, match="no fp8 here"):
        run_passes(negation(), [failing(Unsupported("no fp8 here"))], "test")


def test_the_result_of_each_pass_is_verified(monkeypatch):
    def misplace(function):
        return Function(function.name, Block((), function.body.ops, function.body.yields))

    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    with pytest.raises(InternalError, match="after pass misplace: verifier: in f: neg uses param"):
        run_passes(negation(), [Pass("misplace", misplace)], "test")

"""The same ops on lesser x86 machines (run here) and on Arm (compiled here)."""

import pytest

from tests.codegen import test_cpu_ops as all_ops
from tests.codegen import tile_harness
from tests.codegen.forked import check_in_fork
from tests.codegen.machines import arm, lesser_x86
from tests.codegen.tile_harness import tile_function
from tilewright import ops
from tilewright.codegen.cpu.compile import generate
from tilewright.codegen.llvm import assembly, host
from tilewright.errors import Unsupported
from tilewright.ir.core import OPS
from tilewright.ir.types import DTYPES, TileType
from tilewright.ops.elementwise import Elementwise
from tilewright.passes.pipeline import optimize, prepare_for_cpu

x86_only = pytest.mark.skipif(host().architecture != "x86_64", reason="runs x86 code")


@pytest.fixture(params=["avx2", "sse"])
def lesser_machine(request, monkeypatch):
    machine = lesser_x86(request.param)
    monkeypatch.setattr(tile_harness, "host", lambda: machine)


@x86_only
@pytest.mark.usefixtures("lesser_machine")
def test_a_few_ops_on_lesser_machines():
    fp32 = DTYPES["fp32"]
    for cls in (ops.Exp, ops.Maximum, ops.Div, ops.Ldexp):
        all_ops.test_elementwise(cls, fp32, [{}])
    all_ops.test_elementwise(ops.Div, DTYPES["i32"], [{}])
    all_ops.test_reduce((5, 37), fp32)
    all_ops.test_dot((33, 17, 5), "fp32", "fp32")
    all_ops.test_dot((33, 17, 5), "i8", "i32")


@x86_only
def test_fp16_needs_its_conversions(monkeypatch):
    monkeypatch.setattr(tile_harness, "host", lambda: lesser_x86("sse"))
    with pytest.raises(Unsupported, match="F16C"):
        all_ops.test_elementwise(ops.Add, DTYPES["fp16"], [{}])


@x86_only
@pytest.mark.slow
def test_every_op_with_avx2(monkeypatch):
    monkeypatch.setattr(tile_harness, "host", lambda: lesser_x86("avx2"))
    for case in all_ops.elementwise_cases():
        all_ops.test_elementwise(*case.values)
    for dtype in DTYPES.values():
        all_ops.test_cast(dtype)
    for kind, acc in (("fp16", "fp32"), ("bf16", "fp32"), ("fp64", "fp64"), ("u8", "i32")):
        all_ops.test_dot((20, 40, 64), kind, acc)


def arm_functions():
    """Functions that between them use every elementwise op, and the larger ones."""
    for name in ("fp32", "fp64", "fp16", "bf16", "fp8e4nv", "i8", "u16", "i32", "i64"):
        dtype = DTYPES[name]
        tile = TileType(dtype, (37,))

        def build(emit, x, y, z, dtype=dtype):
            results = []
            for cls in OPS.values():
                if not issubclass(cls, Elementwise):
                    continue
                if cls.accepts != "any" and (cls.accepts == "float") != dtype.is_floating():
                    continue
                names = [n for n, kind in cls.field_kinds.items() if kind == "operand"]
                fields = dict(zip(names, (x, y, z), strict=False))
                extra = {"predicate": "lt"} if cls is ops.Compare else {}
                results.append(emit(cls(**fields, **extra)))
            return results

        yield pytest.param(tile_function([tile] * 3, build), id=name)

    def whole(emit, x, a, b, c, i):
        add = all_ops.region(DTYPES["fp32"], build=lambda e, p, q: e(ops.Add(p, q)))
        return [
            *emit(ops.Reduce((a,), 1, add, commutative=True)).results,
            *emit(ops.Scan((a,), 0, add)).results,
            emit(ops.Sort(x)), emit(ops.Dot(a, b, c)), emit(ops.Gather(x, i, 0)),
            emit(ops.Histogram(16, i)),
        ]  # fmt: skip

    fp32 = DTYPES["fp32"]
    tiles = [
        TileType(fp32, (33,)), TileType(fp32, (16, 24)), TileType(fp32, (24, 8)),
        TileType(fp32, (16, 8)), TileType(DTYPES["i32"], (20,)),
    ]  # fmt: skip
    yield pytest.param(tile_function(tiles, whole), id="whole tiles")


@pytest.mark.parametrize("function", list(arm_functions()))
def test_arm_has_code_for(function):
    machine = arm()
    kernel = generate(prepare_for_cpu(optimize(function)), machine)
    assert check_in_fork(kernel.llvm_ir, machine=machine, level=1) is None


def test_arm_uses_its_vectors():
    function = tile_function(
        [TileType(DTYPES["fp32"], (64,))] * 2, lambda emit, x, y: emit(ops.Fma(x, y, x))
    )
    machine = arm()
    text = assembly(generate(prepare_for_cpu(optimize(function)), machine).llvm_ir, host=machine)
    assert "fmla" in text
    assert ".4s" in text

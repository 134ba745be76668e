"""The analysis of axes against brute force: its claims hold of the evaluated tiles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import ops
from tilewright.interpreter.machine import interpret
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Function, Param
from tilewright.ir.parser import parse
from tilewright.ir.types import DTYPES, PointerType, TileType
from tilewright.passes.axis_info import Stride, analyze_axes

INT32 = TileType(DTYPES["i32"])
ITEMSIZE = 2
SIZES = [1, 2, 3, 4, 8, 12, 16]


class Trees:
    """Random index expressions over two axes, as kernels write them."""

    def __init__(self, draw):
        self.draw = draw
        self.params = (
            Param(TileType(PointerType(DTYPES["fp16"])), "pointer", divisible_by=16),
            Param(INT32, "aligned", divisible_by=16),
            Param(INT32, "any"),
        )
        self.builder = Builder(Block(self.params))
        self.shape = (self.choose(SIZES), self.choose(SIZES))

    def choose(self, options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def emit(self, op):
        return self.builder.emit(op)

    def scalar(self):
        constant = ops.Full(self.choose([0, 1, 2, 3, 4, 8, 12, 16, 64, -4, -1]), INT32)
        return self.choose([*self.params[1:], self.emit(constant)])

    def leaf(self):
        axis = self.choose([0, 1, 2])
        if axis == 2:
            return self.emit(ops.Broadcast(self.scalar(), self.shape))
        start = self.choose([0, 0, 16, 3])
        x = self.emit(ops.Arange(start, start + self.shape[axis]))
        x = self.emit(ops.ExpandDims(x, 1 - axis))
        return self.emit(ops.Broadcast(x, self.shape))

    def tree(self, depth):
        if depth == 0:
            return self.leaf()
        kind = self.draw(st.integers(0, 12))
        x = self.tree(depth - 1)
        if kind == 9:
            return self.reshaped(x)
        if kind == 10:
            return self.emit(ops.Cast(self.emit(ops.Cast(x, DTYPES["i64"])), DTYPES["i32"]))
        if kind == 11:
            return self.emit(ops.Neg(x))
        y = (
            self.tree(depth - 1)
            if kind % 2
            else self.emit(ops.Broadcast(self.scalar(), self.shape))
        )
        if kind == 12:
            condition = self.emit(ops.Compare(self.choose(list(ops.Predicate)), x, y))
            return self.emit(ops.Select(condition, self.tree(depth - 1), y))
        binary = [
            ops.Add, ops.Sub, ops.Mul, ops.Div, ops.Rem, ops.And, ops.Minimum, ops.Or, ops.Add
        ]  # fmt: skip
        return self.emit(binary[kind](x, y))

    def reshaped(self, x):
        rows, columns = self.shape
        x = self.emit(ops.Reshape(x, self.choose([(rows * columns,), (columns, rows)])))
        return self.emit(ops.Reshape(x, self.shape))

    def function(self):
        x = self.tree(self.draw(st.integers(0, 3)))
        shift = ops.Full(self.choose([0, 1, 2, 3]), x.type)
        self.emit(self.choose([ops.ShiftLeft, ops.ShiftRight])(x, self.emit(shift)))
        self.emit(ops.Compare(self.choose(list(ops.Predicate)), x, self.leaf()))
        pointer = self.emit(ops.Broadcast(self.params[0], self.shape))
        self.emit(ops.Permute(self.emit(ops.PointerAdd(pointer, x)), (1, 0)))
        block = self.builder.block
        block.yields = tuple(block.ops)
        return Function("index", block)


@st.composite
def index_functions(draw):
    return Trees(draw).function()


def claims_of(axis, x, unit, scalars):
    """What is claimed of an array along its first axis, with whether it holds."""
    n, step = len(x), unit
    for name, run, difference in [
        ("contiguity", axis.contiguity, step),
        ("constancy", axis.constancy, 0),
    ]:
        inside = [i for i in range(1, n) if i % run]
        yield name, all((x[i] - x[i - 1] == difference).all() for i in inside)
    starts = x[:: axis.contiguity]
    yield "divisibility", (starts % axis.divisibility == 0).all()
    if axis.stride is not None:
        scalar = 1 if axis.stride.scalar is None else scalars[axis.stride.scalar]
        yield "stride", (x[1:] - x[:-1] == axis.stride.factor * int(scalar) * unit).all()


@settings(deadline=None, max_examples=200)
@given(index_functions(), st.sampled_from([0, 16, 48, -32]), st.sampled_from([0, 1, 5, 16, -3]))
def test_claims_hold_of_the_evaluated_tiles(function, aligned, any_number):
    info = analyze_axes(function)
    arguments = (1 << 20, aligned, any_number)
    results = interpret(function, arguments)
    values = dict(zip(function.body.ops, results, strict=True))
    if any(isinstance(op, ops.Rem) and not values[op.y].all() for op in values):
        return  # divisors are taken not to be 0
    scalars = dict(zip(function.params, arguments, strict=True))
    scalars |= {v: x for v, x in values.items() if not x.shape}
    for value, result in values.items():
        unit = ITEMSIZE if value.type.element.is_ptr() else 1
        array = np.atleast_1d(result).astype(np.int64)
        assert len(info.axes(value)) == array.ndim
        for d, axis in enumerate(info.axes(value)):
            for claim, holds in claims_of(axis, np.moveaxis(array, d, 0), unit, scalars):
                assert holds, f"{claim} of {value.op_name} along {d}: {axis}\n{result}"


def facts(text):
    function = parse(text)
    info = analyze_axes(function)
    return {v.name: info.axes(v) for op in function.body.walk() for v in op.results}, function


def test_a_row_of_a_matrix():
    axes, function = facts("""
        func @f(%p: *fp32 {divisible_by=16}, %stride: i32 {divisible_by=16}) {
          %pid = program_id {axis=0} : i32
          %block = full {value=64, of=i32} : i32
          %first = mul %pid, %block : i32
          %r = arange {start=0, end=64} : i32[64]
          %firsts = broadcast %first {shape=[64]} : i32[64]
          %rows = add %r, %firsts : i32[64]
          %rows_2d = expand_dims %rows {axis=1} : i32[64, 1]
          %s = broadcast %stride {shape=[64, 1]} : i32[64, 1]
          %starts = mul %rows_2d, %s : i32[64, 1]
          %starts_2d = broadcast %starts {shape=[64, 64]} : i32[64, 64]
          %columns = expand_dims %r {axis=0} : i32[1, 64]
          %columns_2d = broadcast %columns {shape=[64, 64]} : i32[64, 64]
          %offsets = add %starts_2d, %columns_2d : i32[64, 64]
          %ps = broadcast %p {shape=[64, 64]} : *fp32[64, 64]
          %pointers = pointer_add %ps, %offsets : *fp32[64, 64]
          %size = broadcast %stride {shape=[64]} : i32[64]
          %mask = compare %rows, %size {predicate="lt"} : i1[64]
        }
    """)
    rows, columns = axes["pointers"]
    assert (columns.contiguity, columns.divisibility, columns.stride) == (64, 16, Stride(1))
    assert (rows.contiguity, rows.stride) == (1, Stride(1, function.params[1]))
    assert axes["mask"][0].constancy == 16


def test_remainders_of_numbers_known_to_be_positive():
    axes, _ = facts("""
        func @f(%first: i32 {divisible_by=64}, %n: i32 {divisible_by=16}) {
          %zero = full {value=0, of=i32} : i32
          %positive = compare %first, %zero {predicate="ge"} : i1
          assume %positive
          %r = arange {start=0, end=64} : i32[64]
          %firsts = broadcast %first {shape=[64]} : i32[64]
          %x = add %r, %firsts : i32[64]
          %ns = broadcast %n {shape=[64]} : i32[64]
          %wrapped = rem %x, %ns : i32[64]
          %unknown = sub %r, %firsts : i32[64]
          %not_wrapped = rem %unknown, %ns : i32[64]
        }
    """)
    assert axes["wrapped"][0].contiguity == 16
    assert axes["wrapped"][0].divisibility == 16
    assert axes["not_wrapped"][0].contiguity == 1


def test_pointers_carried_by_a_loop():
    axes, _ = facts("""
        func @f(%p: *fp32 {divisible_by=16}, %n: i32, %step: i32 {divisible_by=16}, %odd: i32) {
          %r = arange {start=0, end=64} : i32[64]
          %ps = broadcast %p {shape=[64]} : *fp32[64]
          %start = pointer_add %ps, %r : *fp32[64]
          %zero = full {value=0, of=i32} : i32
          %one = full {value=1, of=i32} : i32
          %steps = broadcast %step {shape=[64]} : i32[64]
          %odds = broadcast %odd {shape=[64]} : i32[64]
          %a, %b = for %zero, %n, %one, [%start, %start] (%i: i32, %x: *fp32[64], %y: *fp32[64]) {
            %next = pointer_add %x, %steps : *fp32[64]
            %lost = pointer_add %y, %odds : *fp32[64]
            yield %next, %lost
          } : *fp32[64], *fp32[64]
        }
    """)
    assert axes["a"][0].contiguity == axes["b"][0].contiguity == 64
    assert (axes["a"][0].divisibility, axes["b"][0].divisibility) == (16, 4)


@pytest.mark.parametrize(
    ("hints", "contiguity", "divisibility"),
    [
        (["multiple_of"], 1, 32),
        (["max_contiguous"], 32, 1),
        (["multiple_of", "max_contiguous"], 32, 32),
        (["max_contiguous", "multiple_of"], 32, 32),
    ],
)
def test_promises(hints, contiguity, divisibility):
    lines = [
        f"%h{i + 1} = hint %h{i} {{kind={k!r}, values=[32]}} : i32[64]" for i, k in enumerate(hints)
    ]
    text = "\n".join(lines).replace("'", '"')
    axes, _ = facts(f"""
        func @f(%n: i32) {{
          %r = arange {{start=0, end=64}} : i32[64]
          %ns = broadcast %n {{shape=[64]}} : i32[64]
          %h0 = mul %r, %ns : i32[64]
          {text}
        }}
    """)
    (axis,) = axes[f"h{len(hints)}"]
    assert (axis.contiguity, axis.divisibility) == (contiguity, divisibility)

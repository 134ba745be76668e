"""Small expressions, dense in constants and repeated operands, on all pairs of telling values.

Where `test_meaning` looks for what passes do to each other, this looks at single rules: their
guards (-0.0, NaN, infinity in fp8, wrapping, division by 0) and their shapes.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import ops
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Function, Param
from tilewright.ir.types import DTYPES, TileType
from tilewright.ir.verifier import verify
from tilewright.passes.interpret_between import interpret_between
from tilewright.passes.simplify import simplify
from tilewright.passes.step import Step

INTEGERS = ["i1", "i8", "u8", "i32", "u32"]
FLOATS = ["fp16", "bf16", "fp32", "fp64", "fp8e5", "fp8e4nv"]
TELLING_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-6, 448.0, 7e4, np.inf, -np.inf, np.nan]
ARITHMETIC = [ops.Add, ops.Sub, ops.Mul, ops.Div, ops.Rem, ops.Minimum, ops.Maximum]
BITS = [ops.And, ops.Or, ops.Xor, ops.ShiftLeft, ops.ShiftRight]


def telling_values(dtype):
    if dtype.is_floating():
        return TELLING_FLOATS
    low, high = dtype.integer_range
    return sorted({low, high, *(n for n in (0, 1, -1, 2, 3, 7, low + 1) if low <= n <= high)})


def pairs_of(dtype):
    values = np.array(telling_values(dtype), np.float64 if dtype.is_floating() else object)
    with np.errstate(all="ignore"):
        values = values.astype(dtype.numpy)
    return np.repeat(values, len(values)), np.tile(values, len(values))


class Expressions:
    """Random expressions over two tiles of one type."""

    def __init__(self, draw):
        self.draw = draw
        self.dtype = DTYPES[self.choose(INTEGERS + FLOATS)]
        self.tiles = pairs_of(self.dtype)
        type_ = TileType(self.dtype, self.tiles[0].shape)
        self.params = (Param(type_, "x"), Param(type_, "y"))
        self.builder = Builder(Block(self.params))

    def choose(self, options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def emit(self, op):
        return self.builder.emit(op)

    def leaf(self, dtype):
        if self.choose([0, 1]):
            shape = self.params[0].shape
            value = self.choose(telling_values(dtype))
            if value == value and abs(value) != np.inf and self.choose([0, 1, 2]) == 0:
                scalar = self.emit(ops.Full(value, TileType(dtype)))
                return self.emit(ops.Broadcast(scalar, shape))
            return self.emit(ops.Full(value, TileType(dtype, shape)))
        x = self.choose(self.params)
        return x if dtype is self.dtype else self.emit(ops.Cast(x, dtype))

    def tree(self, dtype, depth):
        kind = self.draw(st.integers(0, 9)) if depth else 0
        if kind <= 1:
            return self.leaf(dtype)
        x = self.tree(dtype, depth - 1)
        if kind <= 5:
            y = x if self.choose([0, 1, 2]) == 0 else self.tree(dtype, depth - 1)
            kinds = ARITHMETIC + (BITS if dtype.is_int() else [])
            return self.emit(self.choose(kinds)(*self.choose([(x, y), (y, x)])))
        if kind == 6:
            kinds = [ops.Neg, ops.Abs] + ([ops.Invert] if dtype.is_int() else [])
            return self.emit(self.choose(kinds)(x))
        if kind == 7:
            condition = self.tree(DTYPES["i1"], depth - 1)
            return self.emit(ops.Select(condition, x, self.tree(dtype, depth - 1)))
        if kind == 8 and dtype.is_bool():
            other = DTYPES[self.choose(INTEGERS + FLOATS)]
            y, z = self.tree(other, depth - 1), self.tree(other, depth - 1)
            return self.emit(ops.Compare(self.choose(list(ops.Predicate)), y, z))
        other = self.tree(DTYPES[self.choose(INTEGERS + FLOATS)], depth - 1)
        return self.emit(ops.Cast(other, dtype, self.choose(["rtne", "rtz"])))


@st.composite
def expressions(draw):
    generator = Expressions(draw)
    generator.builder.block.yields = (generator.tree(generator.dtype, 3),)
    return Function("f", generator.builder.block), generator.tiles


def check(function, arguments):
    simpler = simplify(function)
    verify(simpler)
    step = Step("test", 1, "simplify", function, simpler, 0.0)
    interpret_between(lambda: (arguments, ()))(step)


@settings(deadline=None, max_examples=400)
@given(expressions())
def test_rules_keep_every_bit(case):
    check(*case)


class Moves:
    """Random changes of shape of a tile of different numbers, with sums on the way."""

    def __init__(self, draw):
        self.draw = draw
        shape = self.choose([(), (2,), (2, 3), (1, 3), (2, 1, 3), (2, 3, 2)])
        self.params = (Param(TileType(DTYPES["i32"], shape), "x"),)
        self.tile = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
        self.builder = Builder(Block(self.params))

    def choose(self, options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def move(self, x):
        rank, shape = x.type.rank, x.shape
        match self.choose(
            ["permute", "expand", "broadcast", "flatten", "unflatten", "sum", "split"]
        ):
            case "permute" if rank:
                return ops.Permute(x, tuple(self.draw(st.permutations(range(rank)))))
            case "expand" if rank < 4:
                return ops.ExpandDims(x, self.choose(range(rank + 1)))
            case "broadcast":
                if not rank:
                    return ops.Broadcast(x, self.choose([(1,), (2, 2), (3,)]))
                return ops.Broadcast(x, tuple(self.choose([n, 4 if n == 1 else n]) for n in shape))
            case "flatten":
                return ops.Reshape(x, (x.type.size,))
            case "unflatten":
                short = tuple(n for n in shape if n > 1)
                return ops.Reshape(x, self.choose([short, (1, *short), (*short, 1), shape[::-1]]))
            case "sum":
                one = self.builder.emit(ops.Full(self.choose([1, 5]), x.type))
                return ops.Add(x, one)
            case "split" if shape[-1:] == (2,):
                halves = self.builder.emit(ops.Split(x)).results
                return ops.Join(*self.choose([halves, halves[::-1]]))
        return ops.Neg(x)


@st.composite
def moves(draw):
    generator = Moves(draw)
    x = generator.params[0]
    for _ in range(draw(st.integers(1, 6))):
        if x.type.size <= 4**5:
            x = generator.builder.emit(generator.move(x))
    generator.builder.block.yields = (x,)
    return Function("f", generator.builder.block), (generator.tile,)


@settings(deadline=None, max_examples=300)
@given(moves())
def test_rules_move_every_element_to_its_place(case):
    check(*case)

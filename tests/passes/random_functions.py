"""Random functions of the tile IR: the ops that the rules look at, in loops and branches."""

from hypothesis import strategies as st

from tilewright import ops
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Function, Param
from tilewright.ir.types import DTYPES, PointerType, TileType

INTEGERS = ["i1", "i8", "u8", "i32", "u32"]
FLOATS = ["fp32", "fp16", "fp8e5", "fp64"]
SHAPES = [(), (4,), (1,), (1, 4), (4, 1), (2, 4), (4, 4)]
BUFFER_ELEMENTS = 16

ARITHMETIC = [ops.Add, ops.Sub, ops.Mul, ops.Div, ops.Minimum, ops.Maximum]
BITS = [ops.And, ops.Or, ops.Xor, ops.ShiftLeft, ops.ShiftRight, ops.Rem]
CONSTANTS = {
    "bool": [False, True],
    "signed": [0, 1, -1, 2, 7, -128, 127],
    "unsigned": [0, 1, 2, 7, 255],
    "float": [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, float("inf"), float("nan")],
}


def scalar(name):
    return TileType(DTYPES[name])


class Generator:
    """Appends random ops to a block; values that may be used stand in `pool`."""

    def __init__(self, draw):
        self.draw = draw
        self.pointer = Param(TileType(PointerType(DTYPES["i32"])), "memory")
        self.params = (
            self.pointer,
            Param(scalar("i32"), "n"),
            Param(scalar("i1"), "flag"),
            Param(scalar("fp32"), "a"),
        )
        self.pool = list(self.params[1:])
        self.builder = Builder(Block(self.params))

    def choose(self, options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def emit(self, op):
        self.builder.emit(op)
        self.pool += op.results
        return op.results[0] if op.results else None

    def value(self, type_=None):
        """A value of the type: one there is, or a constant, or one made by conversion."""
        if type_ is None:
            return self.choose(self.pool)
        found = [v for v in self.pool if v.type == type_]
        if found and self.draw(st.integers(0, 3)):
            return self.choose(found)
        return (
            self.convert(self.choose(self.pool), type_)
            if self.choose([0, 1])
            else self.constant(type_)
        )

    def constant(self, type_):
        return self.emit(ops.Full(self.choose(CONSTANTS[type_.element.element_kind.value]), type_))

    def convert(self, value, type_):
        if value.shape != type_.shape:
            if value.shape and value.type.size != type_.size:
                return self.constant(type_)
            kind = ops.Reshape if value.type.size == type_.size else ops.Broadcast
            value = self.emit(kind(value, type_.shape))
        return value if value.type == type_ else self.emit(ops.Cast(value, type_.element))

    def type(self):
        name = self.choose(INTEGERS + FLOATS)
        return TileType(DTYPES[name], self.choose(SHAPES))

    def elementwise(self):
        type_ = self.type()
        kinds = ARITHMETIC + (BITS if type_.element.is_int() else [])
        self.emit(self.choose(kinds)(self.value(type_), self.value(type_)))

    def unary(self):
        x = self.value()
        kinds = [ops.Neg, ops.Abs] + ([ops.Invert] if x.type.element.is_int() else [])
        self.emit(self.choose(kinds)(x))

    def compare(self):
        type_ = self.type()
        self.emit(
            ops.Compare(self.choose(list(ops.Predicate)), self.value(type_), self.value(type_))
        )

    def select(self):
        type_ = self.type()
        condition = self.value(type_.with_element(DTYPES["i1"]))
        self.emit(ops.Select(condition, self.value(type_), self.value(type_)))

    def cast(self):
        name = self.choose(INTEGERS + FLOATS)
        self.emit(ops.Cast(self.value(), DTYPES[name], self.choose(["rtne", "rtz"])))

    def shape(self):
        x = self.value()
        rank = x.type.rank
        options = [ops.ExpandDims(x, self.choose(range(rank + 1))), ops.Join(x, self.value(x.type))]
        options.append(ops.Permute(x, tuple(self.choose([range(rank), range(rank)[::-1]]))))
        if not x.shape or x.shape == (4, 1):
            options.append(ops.Broadcast(x, (4, 4)))
        if x.shape[-1:] == (2,):
            options.append(ops.Split(x))
        op = self.choose(options)
        if op.results[0].type.rank <= 2:
            self.emit(op)

    def arange(self):
        start = self.choose([0, 4])
        self.emit(ops.Arange(start, start + 4))

    def address(self):
        """Addresses inside the buffer, whatever the offset."""
        offset = self.value(TileType(DTYPES["i32"], self.choose([(), (4,), (2, 4)])))
        mask = self.emit(ops.Full(BUFFER_ELEMENTS - 1, offset.type))
        offset = self.emit(ops.And(offset, mask))
        pointer = (
            self.builder.emit(ops.Broadcast(self.pointer, offset.shape))
            if offset.shape
            else self.pointer
        )
        pointer = self.builder.emit(ops.PointerAdd(pointer, offset))
        mask = self.value(TileType(DTYPES["i1"], offset.shape)) if self.choose([0, 1]) else None
        return pointer, mask

    def load(self):
        pointer, mask = self.address()
        other = (
            self.value(TileType(DTYPES["i32"], pointer.shape))
            if mask and self.choose([0, 1])
            else None
        )
        self.emit(ops.Load(pointer, mask, other))

    def store(self):
        pointer, mask = self.address()
        if not pointer.shape:  # of lanes with one address, any may win
            self.builder.emit(ops.Store(pointer, self.value(TileType(DTYPES["i32"])), mask))

    def reduce(self):
        x = self.value()
        if not x.shape:
            return
        params = tuple(Param(TileType(x.type.element)) for _ in range(2))
        block = Block(params, [], ())
        block.ops.append(ops.Maximum(*params))
        block.yields = (block.ops[0],)
        self.emit(ops.Reduce((x,), self.choose(range(len(x.shape))), block))

    def region(self, params, types, depth):
        """A block of random ops that yields values of the types."""
        outer, block = self.pool, Block(params)
        self.pool = [*outer, *params]
        with self.builder.inside(block):
            self.ops(self.draw(st.integers(0, 4)), depth + 1)
            block.yields = tuple(self.value(t) for t in types)
        self.pool = outer
        return block

    def branch(self, depth):
        condition = self.value(scalar("i1"))
        types = [self.type() for _ in range(self.choose([0, 1, 2]))]
        self.emit(ops.If(condition, *(self.region((), types, depth) for _ in range(2))))

    def loop(self, depth):
        index = scalar("i32")
        bounds = [ops.Full(self.choose([0, 1, 2, 3]), index) for _ in range(2)]
        start, stop = (self.builder.emit(b) for b in bounds)
        step = self.builder.emit(ops.Full(self.choose([1, 1, 2, -1]), index))
        inits = tuple(self.value() for _ in range(self.choose([0, 1, 2])))
        types = [v.type for v in inits]
        params = tuple(map(Param, [index, *types]))
        self.emit(ops.For(start, stop, step, inits, self.region(params, types, depth)))

    def ops(self, count, depth=0):
        straight = [
            self.elementwise, self.elementwise, self.unary, self.compare, self.select, self.cast,
            self.shape, self.arange, self.load, self.store, self.reduce,
        ]  # fmt: skip
        for _ in range(count):
            kind = self.draw(st.integers(0, len(straight) + 1))
            if kind < len(straight):
                straight[kind]()
            elif depth < 2:
                (self.branch if kind == len(straight) else self.loop)(depth)


@st.composite
def functions(draw, max_ops=12):
    """A function of a buffer of int32 and three scalars, with a few results."""
    generator = Generator(draw)
    generator.ops(draw(st.integers(1, max_ops)))
    body = generator.builder.block
    body.yields = tuple(generator.pool[-10:])
    return Function("random", body)

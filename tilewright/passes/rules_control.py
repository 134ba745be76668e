"""Rules on control flow, on masks, and on ops with several results or none."""

from __future__ import annotations

from tilewright.ir.builder import Emit, clone_op, rewrite_block, with_fields
from tilewright.ir.core import Block, Effect, Op, Value
from tilewright.ops import (
    Assert,
    Assume,
    AtomicRmw,
    Bitcast,
    Broadcast,
    Cast,
    Elementwise,
    For,
    Full,
    If,
    Join,
    Load,
    MapElements,
    Reduce,
    Reshape,
    Select,
    Split,
    Store,
    While,
)
from tilewright.passes.constants import splat

__all__ = [
    "assertion", "assumption", "branch", "counted_loop", "loop", "mapping", "masked", "reduction",
    "split",
]  # fmt: skip

Results = tuple[Value, ...] | None


def masked(op: Op, emit: Emit) -> Results:
    """Simplify a load, store or atomic whose mask is constant."""
    match op:
        case Load(mask=Full(0), other=other):  # no lane reads: `other`
            return (other or emit(splat(0, op)),)
        case AtomicRmw(mask=Full(0)):
            return (emit(splat(0, op)),)
        case Store(mask=Full(0)):
            return ()
        case Load(mask=Full(1)):
            return (emit(with_fields(op, mask=None, other=None)),)
        case AtomicRmw(mask=Full(1)) | Store(mask=Full(1)):
            return emit(with_fields(op, mask=None)).results
        case Load(other=Full(0 as c)) if str(c)[0] != "-":  # 0 (not -0.0) is what masked lanes give
            return (emit(with_fields(op, other=None)),)
    return None


def assertion(op: Op, emit: Emit) -> Results:
    """Remove an assertion that cannot fail."""
    match op:
        case Assert(condition=Full(1)) | Assert(mask=Full(0)):
            return ()
    return None


def assumption(op: Op, emit: Emit) -> Results:
    """Remove an assumption that says nothing."""
    match op:
        case Assume(Full(1)):
            return ()
    return None


def split(op: Op, emit: Emit) -> Results:
    """Simplify the halves of a joined tile."""
    match op:
        case Split(Join(x, y)):  # split(join(x, y)) → x, y
            return x, y
    return None


def reduction(op: Op, emit: Emit) -> Results:
    """Simplify the reduction of an axis of size 1."""
    match op:
        case Reduce(inputs, axis) if inputs[0].shape[axis] == 1:  # one element is its own reduction
            return tuple(
                emit(Reshape(x, result.shape)) for x, result in zip(inputs, op.results, strict=True)
            )
    return None


_ON_TILES = (Bitcast, Cast, Elementwise, Full, Select)


def mapping(op: Op, emit: Emit) -> Results:
    """Compute with tiles where every element goes the same way: map(f, x) → f(x)."""
    match op:
        case MapElements(inputs, body) if all(isinstance(o, _ON_TILES) for o in body.ops):
            return _on_tiles(inputs, body, emit)
    return None


def _on_tiles(inputs: tuple[Value, ...], body: Block, emit: Emit) -> tuple[Value, ...]:
    known: dict[Value, Value] = dict(zip(body.params, inputs, strict=True))
    shape = inputs[0].shape

    def tile(value: Value) -> Value:
        if value not in known:  # from outside
            known[value] = emit(Broadcast(value, shape))
        return known[value]

    for old in body.ops:
        if isinstance(old, Full):
            known[old] = emit(Full(old.value, old.of.with_shape(shape)))
        else:
            known[old] = emit(clone_op(old, {v: tile(v) for v in old.operands}))
    return tuple(map(tile, body.yields))


def branch(op: Op, emit: Emit) -> Results:
    """Simplify an `If`: decided, the same on both sides, or no more than a choice."""
    match op:
        case If(Full(c), then, orelse):  # if true: A else: B → A
            return _spliced(then if c else orelse, emit)
        case If(condition, Block(ops=[], yields=a), Block(ops=[], yields=b)) if all(
            v.type.is_scalar for v in a
        ):  # if c: x else: y → c ? x : y
            pairs = zip(a, b, strict=True)
            return tuple(x if x is y else emit(Select(condition, x, y)) for x, y in pairs)
        case If(_, then, orelse):
            same = [x is y for x, y in zip(then.yields, orelse.yields, strict=True)]
            if any(same):  # a value that both sides yield comes from outside
                return _without_same(op, same, emit)
    return None


def _spliced(block: Block, emit: Emit) -> tuple[Value, ...]:
    for op in block.ops:
        emit(op)
    return block.yields


def _without_same(op: If, same: list[bool], emit: Emit) -> tuple[Value, ...]:
    def shrunk(block: Block) -> Block:
        yields = tuple(v for v, is_same in zip(block.yields, same, strict=True) if not is_same)
        return Block(block.params, block.ops, yields)

    new = iter(emit(with_fields(op, then=shrunk(op.then), orelse=shrunk(op.orelse))).results)
    pairs = zip(op.then.yields, same, strict=True)
    return tuple(value if is_same else next(new) for value, is_same in pairs)


def counted_loop(op: Op, emit: Emit) -> Results:
    """Simplify a `For`: no iteration, one iteration, values carried without change."""
    match op:
        case For(Full(start), Full(stop), Full(step)):
            indices = range(int(start), int(stop), int(step)) if step else range(0)
            if not indices:  # for i in nothing → the initial values
                return op.inits
            if len(indices) == 1:  # for i in [start]: A → A with i = start
                values = (op.start, *op.inits)
                known: dict[Value, Value] = dict(zip(op.body.params, values, strict=True))
                return _spliced(rewrite_block(op.body, _keep, known), emit)
    return _without_invariant(op, emit) if isinstance(op, For) else None


def loop(op: Op, emit: Emit) -> Results:
    """Simplify a `While`: no iteration, values carried without change."""
    match op:
        case While(inits, Block(yields=(Full(0),)) as condition):
            if condition.effect is Effect.NONE:  # while false → the initial values
                return inits
    return _without_invariant(op, emit) if isinstance(op, While) else None


def _without_invariant(op: For | While, emit: Emit) -> Results:
    """Take out the carried values that the body hands on as they are, or sets back to the start."""
    first = int(isinstance(op, For))
    carried = op.body.params[first:]
    steady = [
        value is param or value is init
        for init, param, value in zip(op.inits, carried, op.body.yields, strict=True)
    ]
    if not any(steady):
        return None

    def shrunk(block: Block) -> Block:
        params = block.params[first:]
        known: dict[Value, Value] = {
            p: init for p, init, gone in zip(params, op.inits, steady, strict=True) if gone
        }
        new = rewrite_block(block, _keep, known)
        kept = tuple(p for p, gone in zip(params, steady, strict=True) if not gone)
        yields = new.yields
        if block is op.body:
            yields = tuple(v for v, gone in zip(yields, steady, strict=True) if not gone)
        return Block(block.params[:first] + kept, new.ops, yields)

    inits = tuple(v for v, gone in zip(op.inits, steady, strict=True) if not gone)
    blocks = {name: shrunk(getattr(op, name)) for name in op.region_fields}
    new = iter(emit(with_fields(op, inits=inits, **blocks)).results)
    pairs = zip(op.inits, steady, strict=True)
    return tuple(init if gone else next(new) for init, gone in pairs)


def _keep(op: Op, emit: Emit) -> None:
    """Keep every op: only operands change."""

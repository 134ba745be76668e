"""Choosing how a nest runs: which axis is vectorised, how wide, and how far it is unrolled."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.cpu.effects import AtomicRoot, HistogramRoot, PrintRoot
from tilewright.codegen.cpu.masks import has_test
from tilewright.codegen.cpu.nest import FillRoot, Nest, ReduceRoot, StoreRoot
from tilewright.codegen.cpu.pull import Puller
from tilewright.codegen.uses import Uses, defining_op
from tilewright.ir.core import Value
from tilewright.ir.types import PointerType

__all__ = ["shape_nest"]

_SCALAR_ROOTS = (AtomicRoot, HistogramRoot, PrintRoot)
SMALL_BODY = 40  # instructions; below this, several vectors a step hide latencies
STREAMING_COST = 20  # instructions of an element, addresses and masks included
LARGE_BODY = 250  # above this, a nest is not written twice
Axes = tuple[int | None, ...]


def shape_nest(nest: Nest, puller: Puller, uses: Uses, vector_bits: int) -> int:
    """Set the vector axis and the lanes of `nest`, and return how many vectors a step takes."""
    votes = [0] * len(nest.shape)
    for root in nest.roots:
        _vote_root(root, nest, puller, votes)
    axes = [a for a, n in enumerate(nest.shape) if n > 1] or [len(nest.shape) - 1]
    nest.vector_axis = max(axes, key=lambda a: (votes[a], a))
    if any(isinstance(r, _SCALAR_ROOTS) or _is_sequential(r, nest.vector_axis) for r in nest.roots):
        nest.lanes = 1
        return 1
    extent = nest.shape[nest.vector_axis]
    lanes = vector_bits // max((32, *(_bits(v) for r in nest.roots for v in _data(r))))
    while lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    nest.lanes = lanes
    nest.masks = _masks(nest, puller, uses)
    cost = sum(min(uses.cost(v, load=1), 100) for v in nest.sources)
    reduces = any(isinstance(r, ReduceRoot) for r in nest.roots)
    if not reduces:
        return _shape_streaming(nest, uses, vector_bits)
    return 4 if cost <= SMALL_BODY else 2


def _shape_streaming(nest: Nest, uses: Uses, vector_bits: int) -> int:
    """Memory is the limit of a nest that hardly computes: shorter vectors keep it busier."""
    stores = [root.op.value for root in nest.roots if isinstance(root, StoreRoot)]
    cost = max((uses.cost(value, load=0) for value in stores), default=0)
    stores_only = len(stores) == len(nest.roots)
    if not stores_only or cost > STREAMING_COST or vector_bits <= 256 or nest.lanes <= 8:
        return 1
    nest.lanes //= 2
    return 4


def _masks(nest: Nest, puller: Puller, uses: Uses) -> list[Value]:
    """Return the masks in a nest that is small enough to write twice.

    They are those of loads and stores, and among what selects an element those that are the mask
    of any: if there is no test for such a one, the others are left out all the same.
    """
    if sum(min(uses.cost(v, load=1), LARGE_BODY) for v in nest.sources) > LARGE_BODY:
        return []
    masks: dict[Value, None] = {}
    for root in nest.roots:
        if isinstance(root, StoreRoot) and root.op.mask is not None:
            masks[root.op.mask] = None
    for op in uses.pulled(nest.sources):
        mask = op.mask if isinstance(op, ops.Load) else None
        if isinstance(op, ops.Select) and op.condition in uses.masks:
            mask = op.condition if has_test(puller, op.condition) else None
        if mask is not None:
            masks[mask] = None
    return list(masks)


def _is_sequential(root: object, vector_axis: int) -> bool:
    """A combine function that may not be commutative must see the elements in order."""
    if not isinstance(root, ReduceRoot) or root.op.axis != vector_axis:
        return False
    return not root.op.commutative and root.identity is None


def _data(root: object) -> tuple[Value, ...]:
    match root:
        case StoreRoot(op=op):
            return (op.value,)
        case FillRoot(value=value):
            return (value,)
        case ReduceRoot(op=op):
            return op.inputs
    return ()


def _bits(value: Value) -> int:
    return value.type.element.primitive_bitwidth


def _vote_root(root: object, nest: Nest, puller: Puller, votes: list[int]) -> None:
    """Give each memory access's vote to the axis along which it is contiguous."""
    identity: Axes = tuple(range(len(nest.shape)))
    if isinstance(root, StoreRoot):
        _vote_pointer(root.op.pointer, identity, puller, votes)
    if isinstance(root, FillRoot):
        _vote_strides(root.buffer.strides, identity, votes, 8)
    seen: set[tuple[Value, Axes]] = set()
    waiting: list[tuple[Value, Axes]] = [
        (v, identity) for v in getattr(root, "pulls", ()) if len(v.shape) == len(identity)
    ]
    while waiting:
        value, axes = item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        buffer = puller.buffers.get(value)
        if buffer is not None:
            # What does not vary along an axis is read once for all of it, so it hardly matters.
            varies = all(a in axes for a, n in enumerate(nest.shape) if n > 1)
            _vote_strides(buffer.strides, axes, votes, 8 if varies else 1)
            continue
        waiting += _operands(value, axes)
        if isinstance(value, ops.Load):
            _vote_pointer(value.pointer, axes, puller, votes)


def _operands(value: Value, axes: Axes) -> list[tuple[Value, Axes]]:
    """Return the operands with the nest axis that each of their axes follows."""
    op = defining_op(value)
    match op:
        case None | ops.Reshape() | ops.Split() | ops.Join() | ops.Cat() | ops.Gather():
            return []
        case ops.Broadcast(x=x):
            if not x.shape:
                return []
            return [(x, tuple(None if n == 1 else a for n, a in zip(x.shape, axes, strict=True)))]
        case ops.ExpandDims(x=x, axis=axis):
            return [(x, axes[:axis] + axes[axis + 1 :])]
        case ops.Permute(x=x, order=order):
            source: list[int | None] = [None] * len(order)
            for i, axis in enumerate(order):
                source[axis] = axes[i]
            return [(x, tuple(source))]
    if isinstance(value.type.element, PointerType):
        return []
    return [
        (v, axes) for v in op.operands if v.shape and not isinstance(v.type.element, PointerType)
    ]


def _vote_pointer(pointer: Value, axes: Axes, puller: Puller, votes: list[int]) -> None:
    for position, axis in enumerate(axes):
        run = puller.facts.contiguity(pointer, position)
        if axis is not None and run > 1:
            votes[axis] += min(run, pointer.shape[position], 16)


def _vote_strides(strides: tuple[int, ...], axes: Axes, votes: list[int], weight: int) -> None:
    for stride, axis in zip(strides, axes, strict=True):
        if stride == 1 and axis is not None:
            votes[axis] += weight

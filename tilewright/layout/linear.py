"""Linear layouts: where the elements of a tile live, as a linear map over F2.

What a layout says
------------------
A tile is spread over the registers of the lanes of the warps of a block. A 4x4 tile on four lanes
with four registers each might lie like this (lane, register):

               dim1 0      1      2      3
      dim0 0  l0 r0  l0 r1  l1 r0  l1 r1
           1  l0 r2  l0 r3  l1 r2  l1 r3
           2  l2 r0  l2 r1  l3 r0  l3 r1
           3  l2 r2  l2 r3  l3 r2  l3 r3

Read it from the hardware's side: register 1 is one column to the right of register 0, register 2
is one row below it, lane 1 begins two columns to the right, lane 2 two rows below. These four
facts are the whole table, because the rest follows by adding: lane 3, register 1 holds row 0 + 2,
column 2 + 1. Sizes are powers of two and what is added are single bits, so "adding" can be taken
to be exclusive or. The four facts are the *bases* of the layout, one for each bit of each input:

      register: (0, 1) (1, 0)        register bit 0 -> column + 1, register bit 1 -> row + 1
      lane:     (0, 2) (2, 0)        lane bit 0     -> column + 2, lane bit 1     -> row + 2

and the coordinates of a place are the exclusive or of the bases of the bits that are set in it.
That is a linear map over F2, the field of one bit, and every question about layouts becomes one
of linear algebra on a dozen small integers.

Exclusive or buys more than sums would. Shared memory that is swizzled, so that a column of the
tile does not fall into one bank, is linear too. In this 4x4 tile the column is exchanged with
column ^ row, and the table shows the offset of each element:

               dim1 0   1   2   3
      dim0 0     0   1   2   3
           1     5   4   7   6
           2    10  11   8   9
           3    15  14  13  12                offset: (0, 1) (0, 2) (1, 1) (2, 2)

The basis of offset bit 2 is (1, 1): offset 4 holds row 1, column 1. No set of strides says that.
A basis of zeros says that a bit changes nothing: with `lane: (0, 1) (0, 0)` the lanes 0 and 2 hold
the same elements. Broadcasting, and warps that share an operand, are written that way.

Why from places to coordinates
------------------------------
Both directions look natural, and compilers have used both. Coordinates to places ("element (2, 3)
is in lane 3") is what one asks when an element is sought. But an element may have many places, a
place has only ever one element, and so places to coordinates is the direction that is a function.
Duplicates are then no special case: they are the kernel of the map (`free_masks`). The other
direction is computed where it is needed, by solving: `pseudo_inverse` picks the least place of
each element, and `relative_to` answers directly the question that matters: for each place of one
layout, which place of another holds the same element.

Inputs and outputs have names: `register`, `lane`, `warp` and, in a cluster, `block` on one side,
or `offset` (counted in elements) for memory; `dim0`, `dim1`, … on the other. Names keep layouts of
one tile composable whatever the order in which they list their dimensions.

How it relates to CuTe
----------------------
A CuTe layout is a function from an index to an offset, made of (nested) sizes and strides, with
sums of integers. Its thread-value layouts go from (thread, value) to the coordinates of a tile, as
here. CuTe can say sizes that are no power of two; it can not say exclusive or, so swizzles are
separate functions composed behind the layout, and broadcasting is a stride of 0. Where sizes are
powers of two and strides do not overlap, a mode of size 2^k and stride s is k bases s, 2s, 4s, …,
and the two say the same. What the restriction buys: inverses, quotients and common refinements are
exact, total and short, where CuTe's algebra has conditions of divisibility. Tiles that are no
power of two are padded and masked by those who make them.

Conventions
-----------
In packed integers, and in reshapes, the first dimension is the least significant one, for inputs
and outputs alike. `a * b` places `a` in the low bits and `b` in the high bits of each dimension,
as if each element of `b` were replaced by a tile of `a`.

Linear layouts as used here follow those of Triton (Zhou et al., "Linear Layouts: Robust Code
Generation of Efficient Tensor Computation Using F2", 2025).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.layout.f2 import Echelon, combination, dependencies, log2
from tilewright.locks import cached_property

__all__ = ["Dimension", "LinearLayout"]


class Dimension(NamedTuple):
    """A named input or output whose indices have `bits` bits."""

    name: str
    bits: int

    @property
    def size(self) -> int:
        """How many indices there are."""
        return 1 << self.bits


Dimensions = tuple[Dimension, ...]


def _pack(dimensions: Dimensions, values: Mapping[str, int]) -> int:
    packed = shift = 0
    for name, bits in dimensions:
        packed |= values.get(name, 0) << shift
        shift += bits
    return packed


def _unpack(dimensions: Dimensions, packed: int) -> dict[str, int]:
    values = {}
    for name, bits in dimensions:
        values[name] = packed & ((1 << bits) - 1)
        packed >>= bits
    return values


def _bits(dimensions: Dimensions) -> int:
    return sum(bits for _, bits in dimensions)


def _in_order(dimensions: Dimensions, names: Iterable[str]) -> Dimensions:
    by_name = dict(dimensions)
    ordered = tuple(Dimension(name, by_name[name]) for name in names)
    if sorted(ordered) != sorted(dimensions):
        raise ValueError(f"{[d.name for d in ordered]} does not name each of {sorted(by_name)}")
    return ordered


def _merged(first: Dimensions, second: Dimensions) -> Dimensions:
    """The dimensions of both, sizes of equal names multiplied."""
    bits = dict(first)
    for name, more in second:
        bits[name] = bits.get(name, 0) + more
    return tuple(Dimension(*item) for item in bits.items())


def _from_sizes(sizes: Mapping[str, int]) -> Dimensions:
    return tuple(Dimension(name, log2(size)) for name, size in sizes.items())


@dataclass(frozen=True)
class LinearLayout:
    """A linear map over F2 from named inputs to named outputs; see the text above.

    `columns` are the packed images of the bits of the inputs, from the first bit of the first input
    on. `==` compares the maps and the order of the dimensions; `is_same_map` only the maps.

    >>> tile = LinearLayout.from_bases(
    ...     {"register": [(0, 1), (1, 0)], "lane": [(0, 2), (2, 0)]}, {"dim0": 4, "dim1": 4}
    ... )
    >>> tile(lane=3, register=1)
    {'dim0': 2, 'dim1': 3}
    >>> print(tile)
    register: (0, 1) (1, 0)
    lane: (0, 2) (2, 0)
    to dim0 4, dim1 4
    """

    inputs: Dimensions
    outputs: Dimensions
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.columns) != self.input_bits:
            raise ValueError(f"{len(self.columns)} columns for {self.input_bits} input bits")
        bits = self.output_bits
        if any(column >> bits for column in self.columns):
            raise ValueError("a basis lies outside of the outputs")
        for dimensions in (self.inputs, self.outputs):
            if len({name for name, _ in dimensions}) != len(dimensions):
                raise ValueError("two dimensions have the same name")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Kept: code generation finds each register it has computed by its layout."""
        return hash((self.inputs, self.outputs, self.columns))

    # -- construction -----------------------------------------------------------------------------

    @staticmethod
    def from_bases(
        bases: Mapping[str, Sequence[Sequence[int]]], outputs: Mapping[str, int]
    ) -> LinearLayout:
        """Return the layout with these bases: coordinates in the order of `outputs`, its sizes."""
        dimensions = _from_sizes(outputs)
        columns = []
        for coordinates in (basis for group in bases.values() for basis in group):
            pairs = dict(zip(outputs, coordinates, strict=True))
            if any(value >= outputs[name] or value < 0 for name, value in pairs.items()):
                raise ValueError(f"the basis {pairs} lies outside of {dict(outputs)}")
            columns.append(_pack(dimensions, pairs))
        inputs = tuple(Dimension(name, len(group)) for name, group in bases.items())
        return LinearLayout(inputs, dimensions, tuple(columns))

    @staticmethod
    def empty(inputs: Iterable[str] = (), outputs: Iterable[str] = ()) -> LinearLayout:
        """Return the layout of a single element; every dimension has size 1."""
        return LinearLayout(
            tuple(Dimension(name, 0) for name in inputs),
            tuple(Dimension(name, 0) for name in outputs),
            (),
        )

    @staticmethod
    def identity(size: int, source: str, target: str) -> LinearLayout:
        """Return index i of `source` -> index i of `target`."""
        bits = log2(size)
        columns = tuple(1 << bit for bit in range(bits))
        return LinearLayout((Dimension(source, bits),), (Dimension(target, bits),), columns)

    @staticmethod
    def zeros(size: int, source: str, target: str) -> LinearLayout:
        """Return the layout in which all indices of `source` hold the one element of `target`."""
        bits = log2(size)
        return LinearLayout((Dimension(source, bits),), (Dimension(target, 0),), (0,) * bits)

    # -- dimensions -------------------------------------------------------------------------------

    @property
    def input_bits(self) -> int:
        """How many bits all inputs have together."""
        return _bits(self.inputs)

    @property
    def output_bits(self) -> int:
        """How many bits all outputs have together."""
        return _bits(self.outputs)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(name for name, _ in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(name for name, _ in self.outputs)

    def input_size(self, name: str) -> int:
        """Return the number of indices of an input; an input that is not there has one."""
        return 1 << dict(self.inputs).get(name, 0)

    def output_size(self, name: str) -> int:
        """Return the number of indices of an output; an output that is not there has one."""
        return 1 << dict(self.outputs).get(name, 0)

    def columns_of(self, *names: str) -> tuple[int, ...]:
        """Return the packed images of the bits of these inputs, in the order of `names`."""
        groups, start = {}, 0
        for name, bits in self.inputs:
            groups[name] = self.columns[start : start + bits]
            start += bits
        return tuple(column for name in names for column in groups.get(name, ()))

    def bases(self, name: str) -> list[dict[str, int]]:
        """Return the coordinates of each bit of an input."""
        return [_unpack(self.outputs, column) for column in self.columns_of(name)]

    # -- application ------------------------------------------------------------------------------

    def __call__(self, **place: int) -> dict[str, int]:
        """Return the coordinates of a place; inputs that are left out are 0."""
        for name, index in place.items():
            if not 0 <= index < self.input_size(name):
                raise ValueError(f"{name} has no index {index}")
        return _unpack(self.outputs, self.packed(_pack(self.inputs, place)))

    def packed(self, place: int) -> int:
        """Return the packed coordinates of a packed place."""
        return combination(self.columns, place)

    # -- algebra ----------------------------------------------------------------------------------

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """Return the direct sum: `self` in the low bits of each dimension, `other` in the high.

        >>> four = LinearLayout.identity(4, "register", "dim0")
        >>> lanes = LinearLayout.identity(8, "lane", "dim0")
        >>> (four * lanes)(register=3, lane=2)
        {'dim0': 11}
        """
        inputs = _merged(self.inputs, other.inputs)
        outputs = _merged(self.outputs, other.outputs)
        columns: list[int] = []
        for name, _ in inputs:
            columns += (_pack(outputs, basis) for basis in self.bases(name))
            for basis in other.bases(name):
                raised = {key: value * self.output_size(key) for key, value in basis.items()}
                columns.append(_pack(outputs, raised))
        return LinearLayout(inputs, outputs, tuple(columns))

    def compose(self, after: LinearLayout) -> LinearLayout:
        """Return the layout that applies `self`, then `after`, whose inputs are self's outputs."""
        missing = set(self.output_names) ^ set(after.input_names)
        if missing or any(d.size > after.input_size(d.name) for d in self.outputs):
            raise ValueError(f"outputs {self.outputs} do not fit the inputs {after.inputs}")
        places = (_pack(after.inputs, _unpack(self.outputs, c)) for c in self.columns)
        return LinearLayout(self.inputs, after.outputs, tuple(map(after.packed, places)))

    def inverse(self) -> LinearLayout:
        """Return the layout from coordinates to places; each element must have exactly one."""
        if not self.is_permutation:
            raise ValueError("an element has no place, or several: there is no inverse")
        return self.pseudo_inverse()

    def pseudo_inverse(self) -> LinearLayout:
        """Return coordinates -> the least place of that element; every element must have a place.

        Composed with `self` it is the identity on coordinates.
        """
        units = LinearLayout.identity(1 << self.output_bits, "unit", "unit")
        split = units.reshape_inputs({d.name: d.size for d in self.outputs})
        return split.reshape_outputs({d.name: d.size for d in self.outputs}).relative_to(self)

    def relative_to(self, other: LinearLayout) -> LinearLayout:
        """Return place of `self` -> the least place of `other` that holds the same element.

        `other(result(place)) == self(place)` for every place of `self`.
        """
        outputs = _in_order(self.outputs, other.output_names)
        if outputs != other.outputs:
            raise ValueError(f"tiles of different sizes: {self.outputs} and {other.outputs}")
        solver = Echelon(other.columns)
        columns = []
        for column in self.transpose_outputs(other.output_names).columns:
            place = solver.solve(column)
            if place is None:
                raise ValueError(f"no place holds {_unpack(outputs, column)}")
            columns.append(place)
        return LinearLayout(self.inputs, other.inputs, tuple(columns))

    # -- other shapes of the same map -------------------------------------------------------------

    def reshape_inputs(self, sizes: Mapping[str, int]) -> LinearLayout:
        """Return the layout with the packed place cut into other inputs."""
        return LinearLayout(_from_sizes(sizes), self.outputs, self.columns)

    def reshape_outputs(self, sizes: Mapping[str, int]) -> LinearLayout:
        """Return the layout with the packed coordinates cut into other outputs.

        A reshape of a row-major tile first lists its outputs from the last axis to the first:

        >>> tile = LinearLayout.identity(8, "lane", "dim0") * LinearLayout.zeros(1, "lane", "dim1")
        >>> rows = tile.transpose_outputs(["dim1", "dim0"]).reshape_outputs({"dim1": 4, "dim0": 2})
        >>> rows(lane=6)
        {'dim1': 2, 'dim0': 1}
        """
        outputs = _from_sizes(sizes)
        if _bits(outputs) != self.output_bits:
            raise ValueError(f"{dict(sizes)} has another number of elements than {self.outputs}")
        return LinearLayout(self.inputs, outputs, self.columns)

    def transpose_inputs(self, names: Sequence[str]) -> LinearLayout:
        """Return the layout with its inputs in another order."""
        return LinearLayout(_in_order(self.inputs, names), self.outputs, self.columns_of(*names))

    def transpose_outputs(self, names: Sequence[str]) -> LinearLayout:
        """Return the layout with its outputs in another order."""
        outputs = _in_order(self.outputs, names)
        columns = tuple(_pack(outputs, _unpack(self.outputs, column)) for column in self.columns)
        return LinearLayout(self.inputs, outputs, columns)

    def rename(self, names: Mapping[str, str]) -> LinearLayout:
        """Return the layout with inputs and outputs named anew."""

        def renamed(dimensions: Dimensions) -> Dimensions:
            return tuple(Dimension(names.get(name, name), bits) for name, bits in dimensions)

        return LinearLayout(renamed(self.inputs), renamed(self.outputs), self.columns)

    # -- parts ------------------------------------------------------------------------------------

    def sublayout(self, inputs: Sequence[str], outputs: Sequence[str]) -> LinearLayout:
        """Return these outputs as a function of these inputs, the other inputs being 0."""
        kept = tuple(Dimension(name, log2(self.output_size(name))) for name in outputs)
        columns = tuple(
            _pack(kept, _unpack(self.outputs, column)) for column in self.columns_of(*inputs)
        )
        dimensions = tuple(Dimension(name, log2(self.input_size(name))) for name in inputs)
        return LinearLayout(dimensions, kept, columns)

    def remove_output(self, name: str) -> LinearLayout:
        """Return the layout without a coordinate: the tile with that axis reduced to one."""
        return self.sublayout(self.input_names, [n for n in self.output_names if n != name])

    # -- properties -------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The dimension of the image: 2^rank different elements have a place."""
        return Echelon(self.columns).rank

    @property
    def is_surjective(self) -> bool:
        """Whether every element has a place."""
        return self.rank == self.output_bits

    @property
    def is_injective(self) -> bool:
        """Whether no element has two places."""
        return self.rank == self.input_bits

    @property
    def is_permutation(self) -> bool:
        """Whether every element has exactly one place."""
        return self.is_surjective and self.is_injective

    def free_masks(self) -> dict[str, int]:
        """Return for each input the bits that only lead to copies.

        The places in which all these bits are 0 hold every element exactly once.
        """
        free = 0
        for mask in dependencies(self.columns):
            free |= 1 << mask.bit_length() - 1
        return _unpack(self.inputs, free)

    def is_same_map(self, other: LinearLayout) -> bool:
        """Return whether both say the same, whatever the order of their dimensions.

        Dimensions of size 1 say nothing and are passed over.
        """
        return self._canonical() == other._canonical()

    def _canonical(self) -> LinearLayout:
        inputs = sorted(name for name, bits in self.inputs if bits)
        outputs = sorted(name for name, bits in self.outputs if bits)
        return self.sublayout(inputs, outputs)

    def __str__(self) -> str:
        lines = []
        for name in self.input_names:
            bases = (str(tuple(basis.values())) for basis in self.bases(name))
            lines.append(f"{name}: {' '.join(bases)}".rstrip())
        sizes = ", ".join(f"{d.name} {d.size}" for d in self.outputs)
        return "\n".join([*lines, f"to {sizes}"])

"""Every operation of `LinearLayout` against explicit enumeration of all places."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.layout.strategies import layouts
from tilewright.layout import LinearLayout
from tilewright.layout.f2 import (
    Echelon,
    combination,
    common_complement,
    dependencies,
    independent,
    intersection,
    span,
)
from tilewright.layout.table import draw

SETTINGS = settings(deadline=None, max_examples=60)
SMALL = layouts(most=2)
VECTORS = st.lists(st.integers(0, 31), max_size=6)


def places(dimensions):
    """Every place, as a dictionary, the first dimension running fastest."""
    ranges = [range(d.size) for d in reversed(dimensions)]
    names = [d.name for d in reversed(dimensions)]
    for indices in itertools.product(*ranges):
        yield dict(zip(names, indices, strict=True))


def packed(dimensions, values):
    total, factor = 0, 1
    for name, bits in dimensions:
        total += values.get(name, 0) * factor
        factor <<= bits
    return total


def table(layout):
    return {
        packed(layout.inputs, p): packed(layout.outputs, layout(**p)) for p in places(layout.inputs)
    }


@SETTINGS
@given(layouts())
def test_a_place_is_the_sum_of_its_bases(layout):
    for place in places(layout.inputs):
        total = dict.fromkeys(layout.output_names, 0)
        for name, index in place.items():
            for bit, basis in enumerate(layout.bases(name)):
                if index >> bit & 1:
                    total = {key: value ^ basis[key] for key, value in total.items()}
        assert layout(**place) == total
        assert layout.packed(packed(layout.inputs, place)) == packed(layout.outputs, total)


@settings(deadline=None, max_examples=25)
@given(SMALL, layouts(("lane", "register", "block"), ("dim1", "dim2"), most=2))
def test_product(low, high):
    product = low * high
    for a in places(low.inputs):
        for b in places(high.inputs):
            place = {
                name: a.get(name, 0) + b.get(name, 0) * low.input_size(name)
                for name in product.input_names
            }
            x, y = low(**a), high(**b)
            assert product(**place) == {
                name: x.get(name, 0) + y.get(name, 0) * low.output_size(name)
                for name in product.output_names
            }


@SETTINGS
@given(SMALL, layouts(("dim1", "dim0"), ("offset",)))
def test_composition(first, then):
    assume(all(d.size <= then.input_size(d.name) for d in first.outputs))
    composed = first.compose(then)
    for place in places(first.inputs):
        assert composed(**place) == then(**first(**place))


@SETTINGS
@given(SMALL, layouts(("offset",), ("dim1", "dim0"), most=4))
def test_relative_to_is_the_least_place_with_the_element(layout, other):
    sizes = {d.name: max(d.size, layout.output_size(d.name)) for d in other.outputs}
    layout = layout.transpose_outputs(tuple(sizes))
    layout = LinearLayout.from_bases(
        {n: [tuple(b.values()) for b in layout.bases(n)] for n in layout.input_names}, sizes
    )
    other = LinearLayout.from_bases(
        {"offset": [tuple(b.values()) for b in other.bases("offset")]}, sizes
    )
    held = [other(**place) for place in places(other.inputs)]
    sought = [layout(**place) for place in places(layout.inputs)]
    if any(element not in held for element in sought):
        with pytest.raises(ValueError, match="no place holds"):
            layout.relative_to(other)
        return
    found = layout.relative_to(other)
    for place, element in zip(places(layout.inputs), sought, strict=True):
        assert found(**place) == {"offset": held.index(element)}


@SETTINGS
@given(SMALL)
def test_inverses(layout):
    images = table(layout)
    if layout.is_surjective:
        inverse = table(layout.pseudo_inverse())
        for element in range(1 << layout.output_bits):
            assert inverse[element] == min(p for p, e in images.items() if e == element)
    if layout.is_permutation:
        assert table(layout.inverse()) == {element: place for place, element in images.items()}
    else:
        with pytest.raises(ValueError, match="no inverse"):
            layout.inverse()


@SETTINGS
@given(layouts())
def test_other_shapes_of_the_same_map(layout):
    flat = layout.reshape_inputs({"place": 1 << layout.input_bits})
    flat = flat.reshape_outputs({"element": 1 << layout.output_bits})
    assert {p: flat(place=p)["element"] for p in range(1 << flat.input_bits)} == table(layout)
    inputs = {d.name: d.size for d in layout.inputs}
    outputs = {d.name: d.size for d in layout.outputs}
    assert flat.reshape_inputs(inputs).reshape_outputs(outputs) == layout
    turned = layout.transpose_inputs(layout.input_names[::-1])
    turned = turned.transpose_outputs(layout.output_names[::-1])
    assert turned.is_same_map(layout)
    assert (turned == layout) == (
        turned.inputs == layout.inputs and turned.outputs == layout.outputs
    )
    renamed = layout.rename({"lane": "dim0", "dim0": "offset"})
    for place in places(layout.inputs):
        assert turned(**place) == layout(**place)
        at = {("dim0" if name == "lane" else name): index for name, index in place.items()}
        assert tuple(renamed(**at).values()) == tuple(layout(**place).values())


@SETTINGS
@given(layouts())
def test_parts(layout):
    part = layout.sublayout(("warp", "register"), ("dim1",))
    for place in places(part.inputs):
        assert part(**place) == {"dim1": layout(**place)["dim1"]}
    assert layout.remove_output("dim0").is_same_map(
        layout.sublayout(("register", "lane", "warp"), ("dim1",))
    )


@SETTINGS
@given(layouts())
def test_properties(layout):
    images = list(table(layout).values())
    assert 1 << layout.rank == len(set(images))
    assert layout.is_injective == (len(set(images)) == len(images))
    assert layout.is_surjective == (len(set(images)) == 1 << layout.output_bits)
    free = layout.free_masks()
    originals = [
        packed(layout.outputs, layout(**place))
        for place in places(layout.inputs)
        if not any(place[name] & free[name] for name in place)
    ]
    assert sorted(originals) == sorted(set(images))


@SETTINGS
@given(VECTORS, VECTORS)
def test_spans(a, b):
    sums = {combination(a, mask) for mask in range(1 << len(a))}
    assert span(a) == [combination(a, mask) for mask in range(1 << len(a))]
    assert set(span(independent(a))) == sums
    assert set(span(intersection(a, b))) == sums & set(span(b))
    solver = Echelon(a)
    for vector in range(32):
        masks = [mask for mask in range(1 << len(a)) if combination(a, mask) == vector]
        assert solver.solve(vector) == (min(masks) if masks else None)
        assert (vector in solver) == bool(masks)
    zeros = [mask for mask in range(1 << len(a)) if combination(a, mask) == 0]
    assert sorted(span(dependencies(a))) == zeros


@SETTINGS
@given(VECTORS, VECTORS, st.integers(0, 5))
def test_common_complement(a, b, size):
    basis = [1, 2, 4, 8, 16]
    chosen = common_complement(a, b, size, basis)
    assert len(chosen) == len(independent(chosen)) == size
    if size <= 5 - max(len(independent(a)), len(independent(b))):
        assert set(span(chosen)) & (set(span(a)) | set(span(b))) == {0}


def test_what_is_refused():
    layout = LinearLayout.identity(4, "lane", "dim0")
    for build, message in {
        "LinearLayout.identity(3, 'lane', 'dim0')": "3 is not a power of two",
        "LinearLayout.from_bases({'lane': [(4,)]}, {'dim0': 4})": "outside",
        "layout(lane=4)": "lane has no index 4",
        "layout(warp=1)": "warp has no index 1",
        "layout.reshape_outputs({'dim0': 8})": "another number of elements",
        "layout.reshape_inputs({'lane': 8})": "2 columns for 3 input bits",
        "layout.transpose_outputs(['dim1'])": "dim1",
        "layout.compose(LinearLayout.identity(2, 'dim0', 'offset'))": "do not fit",
        "layout.relative_to(LinearLayout.identity(8, 'lane', 'dim0'))": "different sizes",
    }.items():
        with pytest.raises((ValueError, KeyError), match=message):
            eval(build, {"LinearLayout": LinearLayout, "layout": layout})


def test_drawing():
    layout = LinearLayout.from_bases(
        {"register": [(0, 1)], "lane": [(0, 0), (1, 0)]}, {"dim0": 2, "dim1": 4}
    )
    assert draw(layout) == "l0,r0=l1,r0 l0,r1=l1,r1 - -\nl2,r0=l3,r0 l2,r1=l3,r1 - -"

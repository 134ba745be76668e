"""Random layouts for property tests."""

from hypothesis import strategies as st

from tilewright.layout import LinearLayout
from tilewright.layout.linear import Dimension

PLACES = ("register", "lane", "warp")


@st.composite
def layouts(draw, inputs=("register", "lane", "warp"), outputs=("dim0", "dim1"), most=3):
    """Any linear map at all."""
    ins = tuple(Dimension(name, draw(st.integers(0, most))) for name in inputs)
    outs = tuple(Dimension(name, draw(st.integers(0, most))) for name in outputs)
    limit = (1 << sum(bits for _, bits in outs)) - 1
    count = sum(bits for _, bits in ins)
    columns = draw(st.lists(st.integers(0, limit), min_size=count, max_size=count))
    return LinearLayout(ins, outs, tuple(columns))


def with_outputs(columns, sizes, shape_bits):
    """A layout with these numbers of (register, lane, warp, …) bits over a tile of two axes."""
    inputs = tuple(Dimension(name, bits) for name, bits in sizes.items())
    outputs = tuple(Dimension(f"dim{axis}", bits) for axis, bits in enumerate(shape_bits))
    return LinearLayout(inputs, outputs, tuple(columns))


@st.composite
def onto(draw, sizes, shape_bits, *, mixed):
    """A random register layout that holds every element of the tile at least once.

    Bases are unit vectors and zeros in random places; with `mixed`, any vectors.
    """
    bits, count = sum(shape_bits), sum(sizes.values())
    columns = [1 << bit for bit in range(bits)]
    extra = st.integers(0, (1 << bits) - 1) if mixed else st.just(0)
    columns += draw(st.lists(extra, min_size=count - bits, max_size=count - bits))
    columns = draw(st.permutations(columns))
    if mixed:
        steps = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
        for a, b in draw(st.lists(steps, max_size=4)):
            if a != b:
                columns[a] ^= columns[b]
    return with_outputs(columns, sizes, shape_bits)


@st.composite
def pairs(draw, *, lane_bits=5, most_registers=4, most_warps=2, copies=2, blocks=0):
    """Two register layouts of one tile, over equally many lanes and warps."""
    warps = draw(st.integers(0, most_warps))
    sites = {"lane": lane_bits, "warp": warps}
    if blocks:
        sites["block"] = blocks
    registers = draw(st.integers(0, most_registers))
    bits = max(0, sum(sites.values()) + registers - draw(st.integers(0, copies)))
    rows = draw(st.integers(0, bits))
    mixed = draw(st.booleans())
    both = []
    for _ in range(2):
        spare = draw(st.integers(0, 1))
        sizes = {"register": registers + spare, **sites}
        both.append(draw(onto(sizes, (rows, bits - rows), mixed=mixed)))
    return tuple(both)

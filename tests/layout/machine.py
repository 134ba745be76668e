"""A small machine with registers, lanes and shared memory, which carries out plans by the letter.

It knows no linear algebra: every lane of every warp does what the PTX ISA says of the instruction.
A value is the number of an element (its packed coordinates); None is what nobody wrote.
"""

import functools
import itertools
from collections import defaultdict

import numpy as np

from tilewright.layout import Exchange, Rename, Shuffles
from tilewright.layout.access import Form

SITES = ("lane", "warp", "block")


@functools.lru_cache(maxsize=64)
def images(layout, inputs):
    """The packed outputs for all indices of `inputs`, an array with an axis for each."""
    sizes = [layout.input_size(name) for name in inputs]
    result = np.zeros(sizes, int)
    for indices, name in zip(np.indices(sizes), inputs, strict=True):
        for bit, column in enumerate(layout.columns_of(name)):
            result ^= (indices >> bit & 1) * column
    return result


def sites_of(layout):
    """Every (lane, warp, block)."""
    return list(itertools.product(*(range(layout.input_size(name)) for name in SITES)))


def element(layout, register, site):
    """The coordinates of an element, in the order of the layout's outputs."""
    indices = dict(zip(("register", *SITES), (register, *site), strict=True))
    found = layout(**{name: i for name, i in indices.items() if name in layout.input_names})
    return tuple(found.values())


def filled(layout):
    """The registers of every site, each with the element that the layout says."""
    held = images(layout, (*SITES, "register"))
    return {site: held[site].tolist() for site in sites_of(layout)}


def carry_out(plan, source, target):
    """What the registers hold after the plan."""
    values = filled(source)
    match plan:
        case Rename():
            return {site: [held[r] for r in plan.registers] for site, held in values.items()}
        case Shuffles():
            return shuffle(plan, values)
        case Exchange():
            return exchange(plan, values, target)


def swapped(values, swaps):
    for swap in swaps:
        for (lane, warp, block), held in values.items():
            named = (lane & swap.lane, warp & swap.warp, block & swap.block)
            if sum(bits.bit_count() for bits in named) % 2:
                values[lane, warp, block] = [held[i ^ swap.register] for i in range(len(held))]
    return values


def shuffle(plan, values):
    values = swapped(values, plan.before)
    lanes = images(plan.lane, SITES)
    received = {site: [None] * len(plan.copies) for site in values}
    for transfer in plan.transfers:
        for (lane, warp, block), into in received.items():
            read = int(lanes[lane, warp, block]) ^ transfer.lane
            if plan.is_butterfly:
                assert read == lane ^ transfer.lane
            if not plan.crosses(transfer):
                assert read == lane
            for target, origin in zip(transfer.targets, transfer.sources, strict=True):
                into[target] = values[read, warp, block][origin]
    received = swapped(received, plan.after)
    return {site: [held[c] for c in plan.copies] for site, held in received.items()}


def exchange(plan, values, target):
    lanes, warps = plan.copying
    result = {site: [None] * target.input_size("register") for site in sites_of(target)}
    for repetition in range(plan.repetitions):
        memory = {}
        for instruction in accesses(plan.stores, values, repetition):
            for site, register, offset in instruction:
                if site[0] & lanes or site[1] & warps:
                    continue
                owner = (site[1], site[2]) if plan.is_warp_private else (None, site[2])
                key = owner, offset
                assert key not in memory, "two places store to one address"
                assert offset * plan.stores.element_bits < plan.area_bytes * 8
                memory[key] = values[site][register]
        for instruction in accesses(plan.loads, values, repetition):
            for site, register, offset in instruction:
                owner = (site[1], site[2]) if plan.is_warp_private else (None, site[2])
                result[site][register] = memory[owner, offset]
    return {site: [held[c] for c in plan.copies] for site, held in result.items()}


def accesses(access, sites, repetition=0):
    """Per instruction and warp: what it moves, as (site, register, offset)."""
    warps = sorted({(warp, block) for _, warp, block in sites})
    for move in access.moves:
        if move.repetition == repetition:
            for warp, block in warps:
                yield list(moved(access, move, warp, block))


def pointers_of(access, move, warp, block):
    offsets = images(access.address, SITES)[:, warp, block]
    xored, added = access.split(move)
    assert ((offsets ^ xored) + added == offsets ^ move.offset).all()
    return (offsets ^ move.offset).tolist()


def moved(access, move, warp, block):
    lanes = range(access.address.input_size("lane"))
    pointers = pointers_of(access, move, warp, block)
    if access.form is Form.VECTOR:
        for lane, position in itertools.product(lanes, range(len(move.registers))):
            site = lane, warp, block
            yield site, move.registers[position], pointers[lane] + position
        return
    word = 32 // access.element_bits
    for matrix, lane, part in itertools.product(range(access.matrices), lanes, range(word)):
        register = move.registers[matrix * word + part]
        if access.form is Form.MATRIX:
            row, column = lane // 4, word * (lane % 4) + part
        else:
            row, column = 2 * (lane % 4) + part, lane // 4
        yield (lane, warp, block), register, pointers[8 * matrix + row] + column


def counted_conflicts(access):
    """The most that any bank is asked for beyond its first word, in any phase."""
    worst = 0
    for move in access.moves:
        for warp, block in itertools.product(
            range(access.address.input_size("warp")), range(access.address.input_size("block"))
        ):
            for phase in phases(access, move, warp, block):
                worst = max(worst, banked(phase, access.element_bits))
    return worst


def phases(access, move, warp, block):
    """The element offsets that are asked for together."""
    pointers = pointers_of(access, move, warp, block)
    if access.form is Form.VECTOR:
        each = len(move.registers)
    else:
        each, pointers = 128 // access.element_bits, pointers[: 8 * access.matrices]
    together = min(32, 128 * 8 // (each * access.element_bits))
    for start in range(0, len(pointers), together):
        yield [p + i for p in pointers[start : start + together] for i in range(each)]


def banked(offsets, element_bits):
    words = defaultdict(set)
    for offset in offsets:
        first = offset * element_bits // 32
        for word in range(first, first + max(1, element_bits // 32)):
            words[word % 32].add(word)
    return max(len(asked) for asked in words.values()) - 1

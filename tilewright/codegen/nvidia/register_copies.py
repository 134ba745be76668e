"""Where copies between registers stand beside products that run on by themselves."""

from __future__ import annotations

import re

__all__ = ["place_copies"]

_BEGIN, _END = "\t// begin inline asm\n", "\t// end inline asm\n"
_COPY = r"\tmov\.b\d+ \t(%r\w+), (%r\w+);\n"
_WAIT = re.compile(rf"({_BEGIN}\twgmma\.wait_group\.sync\.aligned \d+;\n{_END})")
_PRODUCT = rf"{_BEGIN}\t\{{\n(?:(?!{_END}).*\n)*?wgmma\.mma_async(?:(?!{_END}).*\n)*{_END}"
_GROUP = re.compile(
    rf"{_BEGIN}\twgmma\.fence\.sync\.aligned;\n{_END}(?:\t\.loc.*\n|{_COPY}|{_PRODUCT})*"
)
_LINE_OR_PRODUCT = re.compile(f"{_BEGIN}(?:.*\n)*?{_END}|.*\n")


def place_copies(ptx: str) -> str:
    """Put copies that stand before a wait for products behind it, those behind a fence before it.

    The sums of products pass through the fence, the products and the wait, so LLVM, for which these
    are operations like any other, may copy what it needs twice beside any of them. But a product
    that runs lets nobody read its registers before the wait, nor write what it takes behind the
    fence (PTX ISA, `wgmma.mma_async`). Fence and wait themselves name no registers.
    """
    return _GROUP.sub(lambda group: _copies_first(group[0]), _copies_behind_waits(ptx))


def _copies_behind_waits(ptx: str) -> str:
    pieces = _WAIT.split(ptx)  # what is between the waits, and the waits, in turns
    for number in range(1, len(pieces), 2):
        lines = pieces[number - 1].splitlines(keepends=True)
        kept = len(lines)
        while kept and re.fullmatch(_COPY, lines[kept - 1]):
            kept -= 1
        pieces[number - 1] = "".join(lines[:kept])
        pieces[number + 1] = "".join(lines[kept:]) + pieces[number + 1]
    return "".join(pieces)


def _copies_first(group: str) -> str:
    """Move copies before the fence, but not across a product that names their registers."""
    first: list[str] = []
    rest: list[str] = []
    named: set[str] = set()
    for text in _LINE_OR_PRODUCT.findall(group):
        copy = re.fullmatch(_COPY, text)
        if copy is not None and named.isdisjoint(copy.groups()):
            first.append(text)
        else:
            rest.append(text)
            named.update(re.findall(r"%r\w+", text))
    return "".join(first + rest)

"""Linear layouts: where the elements of a tile live, and how they get somewhere else.

Pure mathematics of places, with no notion of the IR. `linear` explains what a layout is. The
families are functions in `blocked`, `nvidia`, `amd` (registers) and `shared` (memory); `table`
draws them.
"""

from tilewright.layout.access import plan_access
from tilewright.layout.banks import bank_conflicts
from tilewright.layout.conversion import Exchange, Rename, memory_between, plan_conversion
from tilewright.layout.linear import LinearLayout
from tilewright.layout.reduction import reduction_steps
from tilewright.layout.shuffles import Shuffles
from tilewright.layout.vectors import (
    coalesced_elements,
    contiguous_elements,
    distinct_registers,
    memory_vectors,
    register_copies,
)

__all__ = [
    "Exchange",
    "LinearLayout",
    "Rename",
    "Shuffles",
    "bank_conflicts",
    "coalesced_elements",
    "contiguous_elements",
    "distinct_registers",
    "memory_between",
    "memory_vectors",
    "plan_access",
    "plan_conversion",
    "reduction_steps",
    "register_copies",
]

"""What the language means, in terms of ops: types, shapes, defaults, messages.

One layer for both executors: the ops go to the current context, which appends them to a block or
evaluates them.
"""

from tilewright.frontend.semantic.block_pointer import BlockPointer
from tilewright.frontend.semantic.comparison import (
    PropagateNan,
    condition,
    logical_and,
    logical_not,
    logical_or,
)
from tilewright.frontend.semantic.descriptor import TensorDescriptor, TensorDescriptorType
from tilewright.frontend.semantic.diagnostics import device_assert, device_print, static_assert
from tilewright.frontend.semantic.indexing import index
from tilewright.frontend.semantic.powers import power
from tilewright.frontend.semantic.values import full_of, literal_dtype, to_constant, to_tensor

__all__ = [
    "BlockPointer",
    "PropagateNan",
    "TensorDescriptor",
    "TensorDescriptorType",
    "condition",
    "device_assert",
    "device_print",
    "full_of",
    "index",
    "literal_dtype",
    "logical_and",
    "logical_not",
    "logical_or",
    "power",
    "static_assert",
    "to_constant",
    "to_tensor",
]

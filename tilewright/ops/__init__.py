"""Every op of the tile IR, declared once: fields, type rule, NumPy meaning, documentation."""

from tilewright.ops.control import Call, For, If, While
from tilewright.ops.convert import Bitcast, Cast
from tilewright.ops.descriptor import (
    DescriptorGather,
    DescriptorLoad,
    DescriptorOp,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    Padding,
)
from tilewright.ops.elementwise import (
    Abs,
    Add,
    And,
    Compare,
    Div,
    Elementwise,
    Fma,
    Invert,
    Maximum,
    Minimum,
    Mul,
    MulHigh,
    Neg,
    Or,
    Predicate,
    Rem,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
    Xor,
)
from tilewright.ops.mapping import MapElements
from tilewright.ops.math import (
    Ceil,
    Cos,
    Erf,
    Exp,
    Exp2,
    Floor,
    Ldexp,
    Log,
    Log2,
    MathFunction,
    Pow,
    Rint,
    Rsqrt,
    Sin,
    Sqrt,
    Tanh,
    Trunc,
)
from tilewright.ops.matmul import Dot, InputPrecision
from tilewright.ops.memory import AtomicCas, AtomicKind, AtomicRmw, Load, PointerAdd, Store
from tilewright.ops.native import (
    ForeignCall,
    GridDependency,
    HardwareNumber,
    HardwareRegister,
    InlineAssembly,
)
from tilewright.ops.program import Assert, Assume, Barrier, NumPrograms, Print, ProgramId
from tilewright.ops.reduce import Histogram, Reduce, Scan, Sort
from tilewright.ops.shape import (
    Arange,
    Broadcast,
    Cat,
    ExpandDims,
    Full,
    Gather,
    Hint,
    Join,
    Permute,
    Reshape,
    Split,
)

__all__ = [
    "Abs", "Add", "And", "Arange", "Assert", "Assume", "AtomicCas", "AtomicKind", "AtomicRmw",
    "Barrier", "Bitcast", "Broadcast", "Call", "Cast", "Cat", "Ceil", "Compare", "Cos",
    "DescriptorGather", "DescriptorLoad", "DescriptorOp", "DescriptorReduce",
    "DescriptorScatter", "DescriptorStore", "Div", "Dot", "Elementwise", "Erf", "Exp", "Exp2",
    "ExpandDims", "Floor", "Fma", "For", "ForeignCall", "Full", "Gather", "GridDependency",
    "HardwareNumber", "HardwareRegister", "Hint", "Histogram", "If", "InlineAssembly",
    "InputPrecision", "Invert", "Join", "Ldexp", "Load", "Log", "Log2", "MapElements",
    "MathFunction", "Maximum", "Minimum", "Mul", "MulHigh", "Neg", "NumPrograms", "Or",
    "Padding", "Permute", "PointerAdd", "Pow", "Predicate", "Print", "ProgramId", "Reduce",
    "Rem", "Reshape", "Rint", "Rsqrt", "Scan", "Select", "ShiftLeft", "ShiftRight", "Sin",
    "Sort", "Split", "Sqrt", "Store", "Sub", "Tanh", "Trunc", "While", "Xor",
]  # fmt: skip

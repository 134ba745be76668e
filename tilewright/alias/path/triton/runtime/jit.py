"""`triton.runtime.jit`: kernels."""

from tilewright.alias.kinds import ConstexprFunction
from tilewright.frontend.constexpr_function import constexpr_function
from tilewright.frontend.function import KernelFunction as JITCallable
from tilewright.frontend.parameters import Parameter as KernelParam
from tilewright.runtime.jit import JITFunction, jit
from tilewright.runtime.kernel_interface import KernelInterface
from tilewright.runtime.wrappers import MockTensor, TensorWrapper, reinterpret

__all__ = [
    "ConstexprFunction",
    "JITCallable",
    "JITFunction",
    "KernelInterface",
    "KernelParam",
    "MockTensor",
    "TensorWrapper",
    "constexpr_function",
    "jit",
    "reinterpret",
]

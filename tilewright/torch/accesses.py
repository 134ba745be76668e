"""Which arguments a user's kernel in a compiled function writes to: by our analysis of its IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.frontend.parameters import Parameter
from tilewright.runtime.arguments import Specialization, specialize
from tilewright.runtime.autotune import Autotuner
from tilewright.runtime.build import effects, tile_ir
from tilewright.runtime.heuristics import Heuristics
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.request import Request
from tilewright.runtime.tensor_descriptor import TensorDescriptor
from tilewright.runtime.wrappers import MockTensor

__all__ = ["written_arguments"]

# Stands for a size that is not known yet: neither 1 nor a multiple of 16.
_SOME_SIZE = 2


def written_arguments(
    kernel: Any, values: Mapping[str, Any], descriptors: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the names of the arrays that a kernel may write to, in the order of its parameters.

    `values` are arguments by name: tensors, or stand-ins with a `dtype`, and numbers, also symbolic
    ones; options of the launch among them do not matter. `descriptors` has the shape of the block
    of each tensor that the kernel gets as a descriptor. Of the configurations of an autotuned
    kernel the first is looked at.

    Raises `CompileError` for what the language does not allow.
    """
    function, known = _with_decorators(kernel, dict(values))
    given = {p.name: _stand_in(known.get(p.name, p.default)) for p in function.params}
    for name, block in (descriptors or {}).items():
        given[name] = _descriptor(given[name], block)
    specializations = {p.name: _specialization(p, given[p.name]) for p in function.params}
    request = Request(function, specializations)
    written = set(effects(request, tile_ir(request))["written"])
    return [p.name for p in function.params if p.name in written]


def _with_decorators(kernel: Any, values: dict[str, Any]) -> tuple[JITFunction, dict[str, Any]]:
    """Return the kernel below its decorators, and the arguments with those that they add."""
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner) and kernel.configs:
            values.update(kernel.configs[0].all_kwargs())
        elif isinstance(kernel, Heuristics):
            for name, rule in kernel.values.items():
                values[name] = rule(dict(values))
        kernel = kernel.fn
    return kernel, values


def _stand_in(value: Any) -> Any:
    if type(value) in {bool, int, float, str, tuple} or value is None:
        return value
    if hasattr(value, "get_dtype"):  # a buffer of Inductor's
        return MockTensor(value.get_dtype())
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return MockTensor(value.dtype)
    kind = type(value).__name__
    if kind == "SymBool":
        return True
    if kind == "SymFloat":
        return 2.5
    return _SOME_SIZE if kind == "SymInt" or hasattr(value, "free_symbols") else value


def _descriptor(tensor: Any, block: Any) -> TensorDescriptor:
    others = len(block) - 1
    return TensorDescriptor(tensor, [1] * (others + 1), [16] * others + [1], list(block))


def _specialization(parameter: Parameter, value: Any) -> Specialization:
    return specialize(parameter, value).specialization

"""Putting our answers into PyTorch's modules, as soon as those are imported."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from tilewright.torch.accesses import written_arguments
from tilewright.torch.emitted_source import with_names

__all__ = ["connect"]


def connect() -> None:
    """Answer what `torch.compile` asks about kernels; in modules that are imported later, then.

    Does nothing the second time. Warns where PyTorch's compiler has already been imported, and has
    found no Triton: it does not look again.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    asked = sys.modules.get("torch._inductor.runtime.triton_compat")
    if asked is not None and not asked.HAS_TRITON:
        warnings.warn(
            "torch.compile will not use Tilewright: it was imported before `triton` was there. "
            "Install the alias first, or start the program by `python -m tilewright`",
            RuntimeWarning,
            stacklevel=2,
        )
    sys.meta_path.insert(0, _Finder())
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])


def _change_analysis(module: ModuleType) -> None:
    """Say which arguments are written; PyTorch has asked by one name, then by another."""
    if hasattr(module, "identify_mutated_tensors"):
        vars(module)["identify_mutated_tensors"] = _mutated_tensors
    if hasattr(module, "identify_accessed_tensors"):
        answer = functools.partial(_accessed_tensors, module.TensorAccesses)
        vars(module)["identify_accessed_tensors"] = answer


def _mutated_tensors(
    kernel: Any, kwargs: Mapping[str, Any], descriptors: Mapping[str, Any] | None = None
) -> list[str]:
    return written_arguments(kernel, kwargs, _blocks(descriptors))


def _accessed_tensors(
    accesses: Callable[..., Any],
    kernel: Any,
    kwargs: Mapping[str, Any],
    descriptors: Mapping[str, Any] | None = None,
) -> Any:
    from torch._inductor.dependencies import ReadWrites, StarDep
    from torch._inductor.ir import TensorBox
    from torch.utils._ordered_set import OrderedSet

    written = _mutated_tensors(kernel, kwargs, descriptors)
    tensors = [name for name, value in kwargs.items() if _is_tensor(value, TensorBox)]
    sets = {"reads": tensors, "writes": [name for name in written if name in tensors]}
    found: dict[str, Any] = {k: OrderedSet(map(StarDep, names)) for k, names in sets.items()}
    return accesses(ReadWrites(**found, index_exprs=OrderedSet()), can_fuse_epilogue=False)


def _is_tensor(value: Any, buffer: type) -> bool:
    return isinstance(value, buffer) or (hasattr(value, "data_ptr") and hasattr(value, "dtype"))


def _blocks(descriptors: Mapping[str, Any] | None) -> dict[str, Sequence[int]]:
    """Return the shapes of the blocks: metadata is ("stable", (shape,)) for descriptors of ours."""
    found = {}
    for name, (kind, facts) in (descriptors or {}).items():
        if kind == "stable":
            (found[name],) = facts
    return found


def _change_emitted_source(module: ModuleType) -> None:
    """Import what a user's kernel takes from Tilewright by name into the code written from it."""
    name = "user_defined_triton_kernel_transitive_closure_source_code"
    emitted = getattr(module, name, None)
    if emitted is None:
        return

    @functools.wraps(emitted)
    def with_imports(kernel: Any, *arguments: Any, **named: Any) -> str:
        return with_names(emitted(kernel, *arguments, **named), kernel)

    vars(module)[name] = with_imports


_CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "torch._higher_order_ops.triton_kernel_wrap": _change_analysis,
    "torch._inductor.codegen.wrapper": _change_emitted_source,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it lets the others find, and changes what was loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return what the other finders say, with a loader that changes the module."""
        if name not in _CHANGES:
            return None
        for finder in sys.meta_path:
            if not isinstance(finder, _Finder):
                spec = finder.find_spec(name, path, target)
                if spec is not None and spec.loader is not None:
                    spec.loader = _Loader(spec.loader, _CHANGES[name])
                    return spec
        return None


class _Loader(importlib.abc.Loader):
    """Another loader, and what is done to the module once it is loaded."""

    def __init__(self, loader: Any, change: Callable[[ModuleType], None]) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Let the other loader make the module."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Let the other loader run the module, and change it."""
        self._loader.exec_module(module)
        self._change(module)

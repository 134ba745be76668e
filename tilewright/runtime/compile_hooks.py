"""What the hooks around compiling are told: `jit_cache_hook` and `jit_post_compile_hook`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.runtime.arguments import Argument, gpu_of
from tilewright.runtime.hooks import KernelInfo, hooks
from tilewright.runtime.kernel_source import KernelSource
from tilewright.runtime.options import DEFAULTS
from tilewright.runtime.specialization_text import specialization_data

__all__ = ["is_refused", "tell_compiled"]

# The options that have a name of their own among what hooks are told, and those that they are
# told in the kernel's text, too.
_IN_TEXT = (
    "num_warps",
    "num_ctas",
    "num_stages",
    "enable_fp_fusion",
    "launch_cooperative_grid",
)
_NAMED = (*_IN_TEXT, "extern_libs")


def is_refused(
    kernel: Any, arguments: Sequence[Argument], options: Mapping[str, Any], *, is_warmup: bool
) -> bool:
    """Whether there is a `jit_cache_hook` that returns a true value for what is to be compiled."""
    hook = hooks.jit_cache_hook
    return hook is not None and bool(_call(hook, kernel, arguments, options, is_warmup=is_warmup))


def tell_compiled(
    kernel: Any, arguments: Sequence[Argument], options: Mapping[str, Any], *, is_warmup: bool
) -> None:
    """Call `jit_post_compile_hook` if it is set."""
    hook = hooks.jit_post_compile_hook
    if hook is not None:
        _call(hook, kernel, arguments, options, is_warmup=is_warmup)


def _call(
    hook: Callable[..., Any],
    kernel: Any,
    arguments: Sequence[Argument],
    options: Mapping[str, Any],
    *,
    is_warmup: bool,
) -> Any:
    chosen = {**DEFAULTS, **options}
    known = {argument.name: argument.specialization for argument in arguments}
    gpu = gpu_of(kernel.name, arguments)
    keys = [argument.specialization.key for argument in arguments]
    key = f"{keys}{dict(sorted(options.items()))}"
    source = KernelSource.of(kernel, known)
    types = ", ".join(f"{name}: {kind}" for name, kind in source.signature.items())
    settings = ", ".join(f"{name}={chosen[name]}" for name in _IN_TEXT)
    return hook(
        key=key,
        repr=f"{kernel.__qualname__}[{settings}]({types})",
        fn=KernelInfo(kernel.__module__, kernel.__qualname__, kernel),
        compile={
            "key": key,
            "signature": source.signature,
            "device": gpu or 0,
            "constants": source.constants,
            **{name: chosen[name] for name in _NAMED},
            "configs": [source.attrs],
            "specialization_data": specialization_data(kernel, gpu, known, options),
            "is_warmup": is_warmup,
        },
        is_manual_warmup=is_warmup,
        already_compiled=False,
    )

"""`triton.knobs`: the switches of the environment that Tilewright has too, and the hooks."""

from tilewright.alias.switches import (
    amd,
    autotuning,
    build,
    cache,
    compilation,
    language,
    nvidia,
    proton,
    redis,
    runtime,
)
from tilewright.runtime.hooks import HookChain

__all__ = [
    "HookChain",
    "amd",
    "autotuning",
    "build",
    "cache",
    "compilation",
    "language",
    "nvidia",
    "proton",
    "redis",
    "runtime",
]

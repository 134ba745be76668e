"""`triton.knobs`: the switches of the environment, and the hooks."""

from tilewright.alias.switches import FROM_ENVIRONMENT as env  # noqa: N811 - the name of Triton
from tilewright.alias.switches import GROUPS
from tilewright.alias.switches import Group as base_knobs  # noqa: N813 - the name of Triton
from tilewright.alias.switches import Tool as NvidiaTool
from tilewright.runtime.hooks import CompileTimes, HookChain

amd, autotuning, build = GROUPS["amd"], GROUPS["autotuning"], GROUPS["build"]
cache, compilation, language = GROUPS["cache"], GROUPS["compilation"], GROUPS["language"]
nvidia, proton, redis = GROUPS["nvidia"], GROUPS["proton"], GROUPS["redis"]
runtime = GROUPS["runtime"]

# What is set is in the environment, and so of child processes, too.
propagate_env = True


def refresh_knobs() -> None:
    """Do nothing: the environment is read whenever a switch is asked for."""


__all__ = [
    "CompileTimes",
    "HookChain",
    "NvidiaTool",
    "amd",
    "autotuning",
    "base_knobs",
    "build",
    "cache",
    "compilation",
    "env",
    "language",
    "nvidia",
    "propagate_env",
    "proton",
    "redis",
    "refresh_knobs",
    "runtime",
]

"""`triton.knobs`: the switches of the environment that Tilewright has too."""

from tilewright.alias.switches import autotuning, cache, nvidia, runtime

__all__ = ["autotuning", "cache", "nvidia", "runtime"]

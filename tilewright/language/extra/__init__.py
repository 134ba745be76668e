"""What Triton offers beside its language proper: `tl.extra.libdevice`."""

from tilewright.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]

"""`tl.extra.cuda`, another path to `tl.extra.libdevice`, which serves every target."""

from tilewright.language.extra.cuda import libdevice

__all__ = ["libdevice"]

"""The functions of `tl.extra.libdevice`, under the longer of their two paths."""

from tilewright.language.extra import libdevice as _libdevice

__all__ = list(_libdevice.__all__)

globals().update({name: getattr(_libdevice, name) for name in _libdevice.__all__})

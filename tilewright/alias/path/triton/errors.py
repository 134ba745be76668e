"""`triton.errors`: the base of what Triton raises."""

from tilewright.errors import TilewrightError as TritonError

__all__ = ["TritonError"]

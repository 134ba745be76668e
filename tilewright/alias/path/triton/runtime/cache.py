"""`triton.runtime.cache`: what compiled kernels are kept under."""

from tilewright.alias.cache_names import base32 as _base32
from tilewright.runtime.fingerprint import build_fingerprint as triton_key

from .. import knobs

__all__ = ["_base32", "knobs", "triton_key"]

"""`triton.runtime.cache`: what compiled kernels are kept under."""

from tilewright.runtime.fingerprint import build_fingerprint as triton_key

from .. import knobs

__all__ = ["knobs", "triton_key"]

"""`triton.runtime.cache`: what compiled kernels are kept under."""

from tilewright.alias.cache_names import base32 as _base32
from tilewright.alias.file_cache import FileCacheManager, get_cache_manager
from tilewright.runtime.fingerprint import build_fingerprint as triton_key

from .. import knobs

__all__ = ["FileCacheManager", "_base32", "get_cache_manager", "knobs", "triton_key"]

"""Names of directories in Triton's cache, for programs that look for compiled code there."""

from __future__ import annotations

import base64

__all__ = ["base32"]


def base32(digest: str) -> str:
    """Return the name of the directory for a digest in hexadecimal digits.

    >>> base32("00ff")
    'AD7Q'
    """
    return base64.b32encode(bytes.fromhex(digest)).decode().rstrip("=")

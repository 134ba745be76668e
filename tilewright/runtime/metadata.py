"""What a kernel was compiled for, as Triton's programs ask for it: `kernel.metadata.num_warps`."""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping
from typing import Any

from tilewright.runtime.options import DEFAULTS

__all__ = ["TRITON_VERSION", "make_metadata", "packed"]

# The version of Triton whose names these are, and who answers to them.
TRITON_VERSION = "3.6.0+tilewright"

# What Triton tells of all its kernels, and here is the same for each: they take no memory of these
# kinds, and a program is never spread over a cluster.
_CONSTANT = {
    "tmem_size": 0,
    "global_scratch_size": 0,
    "global_scratch_align": 1,
    "profile_scratch_size": 0,
    "profile_scratch_align": 1,
    "cluster_dims": (1, 1, 1),
    "triton_version": TRITON_VERSION,
}


@functools.cache
def _type(fields: tuple[str, ...]) -> Any:
    return collections.namedtuple("Metadata", fields)  # noqa: PYI024 - the fields are data


def make_metadata(options: Mapping[str, Any], **facts: Any) -> Any:
    """Return a named tuple of all options of a launch, those given and the others, and of facts."""
    target = facts["target"]
    names = {"backend_name": target.backend, "warp_size": target.warp_size}
    fields = {**_CONSTANT, **DEFAULTS, **options, **names, **facts}
    return _type(tuple(fields))(**fields)


def packed(metadata: Any) -> tuple[int, int, int]:
    """Return what Triton's launchers take of it: warps, blocks of a cluster, shared memory."""
    return metadata.num_warps, metadata.num_ctas, metadata.shared

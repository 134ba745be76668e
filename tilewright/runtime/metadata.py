"""What a kernel was compiled for, as Triton's programs ask for it: `kernel.metadata.num_warps`."""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping
from typing import Any

from tilewright.runtime.options import DEFAULTS

__all__ = ["make_metadata"]


@functools.cache
def _type(fields: tuple[str, ...]) -> Any:
    return collections.namedtuple("Metadata", fields)  # noqa: PYI024 - the fields are data


def make_metadata(options: Mapping[str, Any], **facts: Any) -> Any:
    """Return a named tuple of all options of a launch, those given and the others, and of facts."""
    fields = {**DEFAULTS, **options, **facts}
    return _type(tuple(fields))(**fields)

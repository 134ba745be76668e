"""Where a kernel notes the assertion that has failed; known to those who never compile, too."""

__all__ = ["FAILURE"]

FAILURE = "tilewright_failure"
"""A variable in global memory: 0, or one more than the number of an assertion that failed."""

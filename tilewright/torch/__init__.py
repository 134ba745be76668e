"""What `torch.compile` has to be told of kernels; PyTorch itself is imported by the user.

`connect()` is called where `triton` is Tilewright: it puts our answers in place of those that
PyTorch finds by reading Triton's own intermediate representation.
"""

from tilewright.torch.connection import connect

__all__ = ["connect"]

"""What the host needs beside kernels and launches, under the names of Triton's modules."""

from tilewright.tools import tensor_descriptor

__all__ = ["tensor_descriptor"]

"""Tensor descriptors that the host makes, under the name Triton gave the module."""

from tilewright.runtime.tensor_descriptor import TensorDescriptor

__all__ = ["TensorDescriptor"]

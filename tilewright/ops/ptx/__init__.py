"""Inline assembly in PTX, for machines that are no NVIDIA GPUs: its numeric instructions as ops."""

from tilewright.ops.ptx.expansion import expansion
from tilewright.ops.ptx.registers import Registers, Signature, read_constraints

__all__ = ["Registers", "Signature", "expansion", "read_constraints"]

"""Inline assembly in PTX, for machines that are no NVIDIA GPUs: its numeric instructions as ops."""

from tilewright.ops.ptx.expansion import expansion
from tilewright.ops.ptx.registers import Registers, Signature, read_constraints
from tilewright.ops.ptx.text import check_dollars

__all__ = ["Registers", "Signature", "check_dollars", "expansion", "read_constraints"]

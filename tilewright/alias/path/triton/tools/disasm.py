"""`triton.tools.disasm`: machine code as text."""

from tilewright.codegen.nvidia.disassembler import disassembled as get_sass

__all__ = ["get_sass"]

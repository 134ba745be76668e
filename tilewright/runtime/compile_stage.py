"""The stages of compiling that take time of their own."""

from __future__ import annotations

from enum import Enum

__all__ = ["CompileStage"]


class CompileStage(Enum):
    """A stage by its name for people, and by what it makes as it is called in `kernel.asm`."""

    TILE_IR = "tile IR", "tir"
    LLVM_IR = "LLVM IR", "llir"
    PTX = "PTX", "ptx"
    OBJECT = "machine code", "object"
    CUBIN = "machine code", "cubin"
    CUBIN_OF_DRIVER = "machine code from the driver", "cubin"

    def __init__(self, words: str, product: str) -> None:
        self.words = words
        self.product = product

"""The stages of a compiled kernel, `kernel.asm`: each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.runtime.deferred import Deferred

if TYPE_CHECKING:
    from tilewright.codegen.nvidia import disassembler
    from tilewright.ir import printer
    from tilewright.runtime import build
    from tilewright.runtime.request import Request
    from tilewright.target import NvidiaTarget
else:
    build = Deferred("tilewright.runtime.build")
    disassembler = Deferred("tilewright.codegen.nvidia.disassembler")
    printer = Deferred("tilewright.ir.printer")

__all__ = ["Stages", "gpu_stages", "tile_stages"]

# Other names of stages, for programs that ask by those of Triton.
_OTHER_NAMES = {"ttir": "tir"}
_NO_LAYOUTS = "there is no stage 'ttgir': tile IR has no layouts, they are chosen while PTX is made"

Makers = Mapping[str, Callable[[], Any]]


class Stages(Mapping[str, Any]):
    """Texts and machine code by stage, as `makers` give them; each is made once.

    A stage that has two names is listed under both.
    """

    def __init__(self, makers: Makers) -> None:
        self._makers = makers
        self._made: dict[str, Any] = {}

    def __getitem__(self, stage: str) -> Any:
        stage = _OTHER_NAMES.get(stage, stage)
        if stage not in self._makers:
            listed = f"{stage!r}: the stages are {', '.join(self)}"
            raise KeyError(_NO_LAYOUTS if stage == "ttgir" else listed)
        if stage not in self._made:
            self._made[stage] = self._makers[stage]()
        return self._made[stage]

    def __iter__(self) -> Iterator[str]:
        yield from self._makers
        yield from (name for name, stage in _OTHER_NAMES.items() if stage in self._makers)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def tile_stages(
    request: Request, target: NvidiaTarget | None = None
) -> dict[str, Callable[[], Any]]:
    """Return how to make tile IR: as it is traced (`source`), and optimised (`tir`)."""
    return {
        "source": lambda: printer.to_text(build.traced(request, target)),
        "tir": lambda: printer.to_text(build.tile_ir(request, target)),
    }


def gpu_stages(
    request: Request,
    llvm_ir: Callable[[], str],
    ptx: str,
    cubin: bytes | None,
    target: NvidiaTarget | None = None,
) -> Stages:
    """Return the stages of a kernel for a GPU; `cubin` and `sass` where there is machine code."""
    stages = {**tile_stages(request, target), "llir": llvm_ir, "ptx": lambda: ptx}
    if cubin:
        stages["cubin"] = lambda: cubin
        stages["sass"] = lambda: disassembler.disassembled(cubin)
    return Stages(stages)

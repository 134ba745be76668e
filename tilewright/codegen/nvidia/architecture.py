"""What layouts depend on, of one NVIDIA architecture."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.gpu.products import ProductPlan
from tilewright.codegen.nvidia.product_plans import product_of
from tilewright.target import NvidiaTarget

__all__ = ["NvidiaArchitecture"]


class NvidiaArchitecture:
    """The facts of a target, as `Placement` asks for them: see `Architecture`."""

    def __init__(self, target: NvidiaTarget) -> None:
        self.target = target
        self.warp_size = target.warp_size
        self.copies_rows = target.has_tma

    def most_summed(self, element: str) -> int:
        vectors = self.target.has_vector_atomics
        pairs = 8 if vectors else 1
        return {"fp32": 4 if vectors else 1, "bf16": pairs, "fp16": max(2, pairs)}.get(element, 1)

    def product_of(self, op: ops.Dot, num_warps: int, *, chained: bool, deep: bool) -> ProductPlan:
        return product_of(op, self.target, num_warps, chained=chained, deep=deep)

"""What the tests launch kernels on, beside eager mode and the CPU."""

from tilewright.runtime.emulated import current_emulation

__all__ = ["EMULATED", "product_tolerance"]

EMULATED = ("sm_80", "sm_90a")


def product_tolerance(exact: float) -> float:
    """A bound of the error of `tl.dot` on fp32: `exact` where it multiplies in fp32.

    GPUs multiply 10 bits of each number (tf32), rounded or cut off, unless the kernel says more.
    """
    return exact if current_emulation() is None else max(exact, 2e-2)

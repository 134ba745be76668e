"""What is measured: one row for each kernel and size, the same work for Tilewright and torch.

Both sides read the same memory. Where torch takes `out=`, both write to an array that is there
already; where it does not, both allocate their result with the same allocator, which is told to
keep the memory that it gets back: else the page faults of fresh memory would be most of the time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from examples import attention, elementwise, matmul, rows
from tilewright.codegen.llvm import host

try:
    import torch
except ImportError:
    torch = None

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt
GELU_FACTOR = 0.7978845608028654


@dataclass(frozen=True)
class Sides:
    """Three functions that compute the same; each returns its result. No torch: None."""

    tilewright: Callable[[], Any]
    torch: Callable[[], Any] | None
    numpy: Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """`amount` is in billions of floating-point operations or bytes, as `unit` says.

    `goal` is the least ratio of torch's time to Tilewright's; `tolerance` bounds the largest
    difference between their results. `needs` names what a machine must have, if anything.
    """

    name: str
    goal: float
    amount: float
    unit: str
    tolerance: float
    make: Callable[[], Sides]
    needs: str = ""

    @property
    def is_supported(self) -> bool:
        return self.needs != "AMX" or host().has_amx


def keep_freed_memory() -> None:
    """Let malloc take large arrays from memory that was freed, where it is glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


# Arrays: tensors where torch is installed, so that both sides have the same allocator.


def random(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return values if torch is None else torch.from_numpy(values).clone()


def like(array: Any) -> Any:
    return np.empty_like(array) if torch is None else torch.empty_like(array)


def numpy_of(array: Any) -> np.ndarray:
    """The same memory as a NumPy array; bf16 tensors are converted to fp32."""
    if isinstance(array, np.ndarray):
        return array
    return array.float().numpy() if array.dtype == torch.bfloat16 else array.numpy()


def writing(function: Callable[..., Any], *arguments: Any, out: Any, **constants: Any) -> Any:
    """Call a function whose last argument is what it writes, and return that."""
    function(*arguments, out, **constants)
    return out


# Rows. Block sizes were searched for on a Zen 4 machine with 2 cores, by CPU time.

MATMUL_BLOCKS = {"BLOCK_M": 256, "BLOCK_N": 512, "BLOCK_K": 256, "GROUP_M": 4}


def make_matmul(size: int, kernel: Any, *, is_bf16: bool = False) -> Sides:
    a, b = random(size, size), random(size, size, seed=1)
    if is_bf16:
        if torch is None:
            a, b = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
        else:
            a, b = a.bfloat16(), b.bfloat16()
    ours, theirs = like(a), like(a)
    numpy_a, numpy_b = numpy_of(a).astype(np.float32), numpy_of(b).astype(np.float32)
    return Sides(
        lambda: writing(matmul.matmul, a, b, out=ours, kernel=kernel, **MATMUL_BLOCKS),
        None if torch is None else lambda: torch.matmul(a, b, out=theirs),
        lambda: numpy_a @ numpy_b,
    )


def make_add() -> Sides:
    x, y = random(1 << 26), random(1 << 26, seed=1)
    ours, theirs = like(x), like(x)
    return Sides(
        lambda: writing(elementwise.add, x, y, out=ours, block=16384),
        None if torch is None else lambda: torch.add(x, y, out=theirs),
        lambda: np.add(numpy_of(x), numpy_of(y), out=numpy_of(theirs)),
    )


def make_softmax() -> Sides:
    x = random(4096, 4096)
    ours, theirs = like(x), like(x)

    def with_numpy() -> np.ndarray:
        values = numpy_of(x)
        numerator = np.exp(values - values.max(axis=1, keepdims=True))
        return numerator / numerator.sum(axis=1, keepdims=True)

    return Sides(
        lambda: writing(rows.softmax, x, out=ours),
        None if torch is None else lambda: torch.softmax(x, 1, out=theirs),
        with_numpy,
    )


def make_layer_norm() -> Sides:
    x = random(4096, 4096)
    weight, bias, mean, rstd = random(4, 4096)

    def with_tilewright() -> Any:
        out = like(x)
        rows.layer_norm(x, weight, bias, out, mean, rstd)
        return out

    def with_numpy() -> np.ndarray:
        values = numpy_of(x)
        centered = values - values.mean(axis=1, keepdims=True)
        variance = (centered * centered).mean(axis=1, keepdims=True)
        return centered / np.sqrt(variance + 1e-5) * numpy_of(weight) + numpy_of(bias)

    return Sides(
        with_tilewright,
        None if torch is None else lambda: torch.nn.functional.layer_norm(x, (4096,), weight, bias),
        with_numpy,
    )


def make_gelu() -> Sides:
    x, residual = random(4096, 4096), random(4096, 4096, seed=1)
    bias = random(4096)

    def with_tilewright() -> Any:
        out = like(x)
        elementwise.bias_gelu_scale_residual(x, bias, residual, out, 0.5)
        return out

    def with_torch() -> Any:
        return torch.nn.functional.gelu(x + bias, approximate="tanh") * 0.5 + residual

    def with_numpy() -> np.ndarray:
        y = numpy_of(x) + numpy_of(bias)
        inner = np.float32(GELU_FACTOR) * (y + np.float32(0.044715) * y * y * y)
        return y * (1 + np.tanh(inner)) * np.float32(0.25) + numpy_of(residual)

    return Sides(with_tilewright, None if torch is None else with_torch, with_numpy)


def make_attention(length: int) -> Sides:
    q, k, v = random(3, 1, 8, length, 64)

    def with_tilewright() -> Any:
        out = like(q)
        attention.attention(q, k, v, out, block_m=256, block_n=256)
        return out

    def with_numpy() -> np.ndarray:
        queries, keys, values = map(numpy_of, (q, k, v))
        logits = queries @ keys.swapaxes(-1, -2) * np.float32(1 / 8)
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return p @ values / p.sum(axis=-1, keepdims=True)

    return Sides(
        with_tilewright,
        None
        if torch is None
        else lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        with_numpy,
    )


def matmul_row(name: str, size: int, kernel: Any, goal: float = 0.90, **settings: Any) -> Row:
    return Row(
        name=name,
        goal=goal,
        amount=2e-9 * size**3,
        unit="GFLOP/s",
        tolerance=1.0 if settings else 2e-3,  # fp32: sums in another order; bf16: one rounding
        make=partial(make_matmul, size, kernel, **settings),
        needs="AMX" if settings else "",
    )


ROWS = (
    matmul_row("matmul fp32 1024", 1024, matmul.matmul_kernel),
    matmul_row("matmul fp32 2048", 2048, matmul.matmul_kernel),
    matmul_row("matmul fp32 1024, whole blocks", 1024, matmul.whole_matmul_kernel),
    matmul_row("matmul fp32 2048, whole blocks", 2048, matmul.whole_matmul_kernel),
    matmul_row("matmul bf16 1024", 1024, matmul.whole_matmul_kernel, 0.70, is_bf16=True),
    Row("add fp32 2^26", 0.95, 12e-9 * 2**26, "GB/s", 0.0, make_add),
    Row("softmax fp32 4096 x 4096", 1.2, 8e-9 * 2**24, "GB/s", 1e-6, make_softmax),
    Row("layer norm fp32 4096 x 4096", 1.2, 8e-9 * 2**24, "GB/s", 1e-4, make_layer_norm),
    Row("bias gelu scale residual fp32 2^24", 2.0, 12e-9 * 2**24, "GB/s", 1e-5, make_gelu),
    Row(
        name="flash attention fp32 (1, 8, 2048, 64)",
        goal=1.0,
        amount=4e-9 * 8 * 2048**2 * 64,
        unit="GFLOP/s",
        tolerance=1e-5,
        make=partial(make_attention, 2048),
    ),
)

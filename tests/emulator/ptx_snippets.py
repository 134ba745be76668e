"""Instructions as small kernels: each thread reads inputs, runs a few instructions, and stores.

A snippet names its inputs `a`, `b`, `c` and its result `d`; all snippets of a set are entries of
one PTX module, so that an assembler sees them in one go.
"""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewright.emulator import Emulator

THREADS = 128
_NAMES = "abc"


@dataclass(frozen=True)
class Snippet:
    """A body, the types of its inputs and of its result, and what NumPy says it computes."""

    name: str
    body: str
    inputs: tuple[np.dtype[Any], ...]
    output: np.dtype[Any]
    oracle: Callable[..., Any] | None = None
    ulp: float = 0.0  # allowed difference on a device, in units of the last place


def snippet(
    body: str,
    inputs: str,
    output: str,
    oracle: Callable[..., Any] | None = None,
    *,
    name: str = "",
    ulp: float = 0.0,
) -> Snippet:
    kinds = tuple(np.dtype(kind) for kind in inputs.split())
    name = name or body.split(";", maxsplit=1)[0].strip().split(" ")[0]
    return Snippet(name, body, kinds, np.dtype(output), oracle, ulp)


def _register(kind: np.dtype[Any]) -> str:
    return f"b{max(16, kind.itemsize * 8)}"


def entry(name: str, item: Snippet) -> str:
    """Write the kernel of a snippet."""
    names = [*_NAMES[: len(item.inputs)], "d"]
    kinds = [*item.inputs, item.output]
    lines = [f".visible .entry {name}("]
    lines.append(",\n".join(f"  .param .u64 {name}_{x}" for x in names))
    lines.append(")\n{\n  .reg .b64 %address, %offset;\n  .reg .b32 %thread;\n  .reg .pred %p<4>;")
    lines.append("  .reg .b16 %h<8>;\n  .reg .b32 %r<16>;\n  .reg .b64 %l<8>;")
    lines += [f"  .reg .{_register(kind)} {x};" for x, kind in zip(names, kinds, strict=True)]
    lines.append("  mov.u32 %thread, %tid.x;")
    for x, kind in zip(names, kinds, strict=True):
        lines.append(f"  ld.param.u64 %address, [{name}_{x}];")
        lines.append(f"  mul.wide.u32 %offset, %thread, {kind.itemsize};")
        lines.append("  add.s64 %address, %address, %offset;")
        if x != "d":
            lines.append(f"  ld.global.b{kind.itemsize * 8} {x}, [%address];")
        else:
            lines.append(f"  {item.body.strip()}")
            lines.append(f"  st.global.b{kind.itemsize * 8} [%address], {x};")
    return "\n".join([*lines, "  ret;\n}\n"])


def module(items: Sequence[Snippet], target: str = "sm_90a") -> str:
    """Write a module with one entry for each snippet: `s0`, `s1`, ..."""
    head = f".version 8.6\n.target {target}\n.address_size 64\n"
    return head + "\n".join(entry(f"s{i}", item) for i, item in enumerate(items))


def kernel(body: str, pointers: int = 2, *, shared: str = "", target: str = "sm_90a") -> str:
    """Write a kernel `k` of some pointers (in %p0, %p1, ...) with its thread's number in %t.

    `shared` declares shared memory. Registers: %r0.. of 32 bits, %l0.. of 64, %h0.. of 16, %q0..
    predicates.
    """
    parameters = ", ".join(f".param .u64 k_{i}" for i in range(pointers))
    loads = "\n".join(f"  ld.param.u64 %p{i}, [k_{i}];" for i in range(pointers))
    return f""".version 8.6
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k({parameters})
{{
  {shared}
  .reg .pred %q<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<32>;
  .reg .b64 %l<16>;
  .reg .b64 %p<{max(pointers, 1)}>;
  .reg .b32 %t;
{loads}
  mov.u32 %t, %tid.x;
{body}
  ret;
}}
"""


TELLING_INTEGERS = [0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF]
TELLING_INTEGERS += [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF]
TELLING_FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    1e-3,
    1e4,
    65504.0,
    65520.0,
    448.0,
]
TELLING_FLOATS += [464.0, 480.0, 57344.0, 61440.0, 1e-40, 6e-8, 5.9e-8, 2.0**-9, 2.0**-10, 1e38]
TELLING_FLOATS += [3.4e38, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -5.0, 1e-8, -1e-30, 0.1, -0.3]
TELLING_FLOATS += [float("inf"), float("-inf"), float("nan")]


def inputs_of(item: Snippet, seed: int = 0) -> list[np.ndarray]:
    """Make inputs: pairs of telling values first, then random ones."""
    random = np.random.default_rng(seed)
    arrays = []
    for position, kind in enumerate(item.inputs):
        if kind.kind in "iu":
            mask = (1 << 8 * kind.itemsize) - 1
            telling = np.array([v & mask for v in TELLING_INTEGERS], np.uint64)
            noise = random.integers(0, 1 << 63, THREADS, np.uint64) & np.uint64(mask)
            noise >>= random.integers(0, 8 * kind.itemsize, THREADS).astype(np.uint64)
            values = noise.astype(f"u{kind.itemsize}").view(kind)
            known = telling.astype(f"u{kind.itemsize}").view(kind)
        else:
            with np.errstate(all="ignore"):
                known = np.array(TELLING_FLOATS, np.float64).astype(kind)
                values = (
                    random.normal(size=THREADS) * 10.0 ** random.integers(-3, 4, THREADS)
                ).astype(kind)
        shifted = np.roll(known, position * 5 + seed)[: THREADS // 2]
        values[: shifted.size] = shifted
        arrays.append(values)
    return arrays


def run(item: Snippet, inputs: Sequence[np.ndarray], emulator: Emulator, name: str) -> np.ndarray:
    """Run one entry in the emulator."""
    out = np.zeros(THREADS, item.output)
    emulator.launch(name, (1,), (THREADS,), [*inputs, out])
    return out


def assemble(text: str, target: str = "sm_90a") -> None:
    """Let ptxas judge a module; skip the test where there is none."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("there is no ptxas")
    result = subprocess.run(
        [ptxas, f"-arch={target}", "-O0", "-", "-o", "/dev/null"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]

"""Kernels that fit a multiprocessor only since less of them lies there at once."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import small_integers
from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia import compile as nvidia
from tilewright.codegen.nvidia.assembler import assemble
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.errors import Unsupported
from tilewright.tools.tensor_descriptor import TensorDescriptor


@tw.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Operands that are computed: a product reads them from shared memory."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a = tl.load(a_ptr + m * K + k[None, :]) + 1
    b = tl.load(b_ptr + k[:, None] * N + n) + 1
    tl.store(c_ptr + m * N + n, tl.dot(a, b).to(tl.float16))


@tw.jit
def gather_kernel(x, y, index_ptr, out, M: tl.constexpr, N: tl.constexpr):
    """Blocks of descriptors that stay in shared memory, and a table of a whole tile beside them."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = x.load([0, 0]), y.load([0, 0])
    found = tl.gather(a + b, tl.load(index_ptr + at), 1)
    out.store([0, 0], found - a + b)


def written(kernel, values, architecture, **constants):
    """The function and target of a call, its PTX, and the shared memory it would take in whole."""
    options = {k: constants.pop(k) for k in ("num_warps", "num_stages") if k in constants}
    chosen, target = GpuOptions(**options), harness.ARCHITECTURES[architecture]
    function, raw = harness.lowered(kernel, values, constants)
    prepared = nvidia.prepare(function, target, chosen)
    whole = nvidia._with_fewer_stages(prepared, target, chosen).shared_bytes
    return nvidia.generate(prepared, target, chosen), raw, whole > target.shared_bytes


def check(kernel, values, expected, architecture, **constants):
    """The kernel does not fit in whole, and computes what it should."""
    ptx, raw, is_too_large = written(kernel, values, architecture, **constants)
    assert is_too_large
    out = values[-1].base if isinstance(values[-1], TensorDescriptor) else values[-1]
    report = harness.emulate(ptx, (1, 1, 1), harness.passed(values, raw), races=True)
    assert not report.findings, report
    np.testing.assert_array_equal(out, expected)
    return ptx.ptx


PRODUCTS = [
    ("sm_75", (64, 64, 512), 8),
    pytest.param("sm_86", (32, 64, 1024), 8, marks=pytest.mark.slow),
    pytest.param("sm_80", (64, 64, 1024), 8, marks=pytest.mark.slow),
    pytest.param("sm_90a", (128, 256, 512), 16, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("architecture", "sizes", "num_warps"), PRODUCTS)
def test_operands_of_products(architecture, sizes, num_warps):
    m, n, k = sizes
    a, b = small_integers((m, k), np.float16), small_integers((k, n), np.float16, 1)
    out = np.zeros((m, n), np.float16)
    expected = ((a + 1).astype(np.float32) @ (b + 1).astype(np.float32)).astype(np.float16)
    values = [a, b, out]
    check(product_kernel, values, expected, architecture, M=m, N=n, K=k, num_warps=num_warps)


def test_blocks_of_descriptors_beside_a_table():
    m, n = 128, 256
    x, y = small_integers((m, n), np.float16), small_integers((m, n), np.float16, 1)
    index = np.random.default_rng(2).integers(0, n, (m, n), np.int32)
    out = np.zeros((m, n), np.float16)
    descriptors = [TensorDescriptor.from_tensor(array, [m, n]) for array in (x, y, out)]
    expected = np.take_along_axis(x + y, index, 1) - x + y
    values = [*descriptors[:2], index, descriptors[2]]
    ptx = check(gather_kernel, values, expected, "sm_120a", M=m, N=n, num_warps=8)
    assert "cp.async.bulk.tensor" not in ptx


def test_what_is_too_large_in_every_form_is_refused_with_its_line():
    m, n = 256, 256
    descriptors = [TensorDescriptor.from_tensor(np.zeros((m, n), np.float16), [m, n])] * 3
    values = [*descriptors[:2], np.zeros((m, n), np.int32), descriptors[2]]
    with pytest.raises(Unsupported, match="needs 131072 bytes") as caught:
        written(gather_kernel, values, "sm_120a", M=m, N=n, num_warps=8)
    assert "131072 bytes at " in str(caught.value)
    assert "found = tl.gather(" in str(caught.value)


def test_products_of_many_warps_have_as_many_columns_as_registers():
    """An instruction whose sums are more registers than a thread has would be refused."""
    a, b = np.zeros((256, 64), np.float16), np.zeros((64, 256), np.float16)
    constants = {"M": 256, "N": 256, "K": 64, "num_warps": 16}
    ptx, *_ = written(
        product_kernel, [a, b, np.zeros((256, 256), np.float16)], "sm_90a", **constants
    )
    assert "m64n128k16" in ptx.ptx
    if find_ptxas() is not None:
        assemble(ptx.ptx, harness.ARCHITECTURES["sm_90a"], find_ptxas())

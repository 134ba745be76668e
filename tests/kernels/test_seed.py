"""A first matmul as it is often printed: two mistakes, each with an error that says what to do."""

import numpy as np
import pytest

import tilewright as tw
from examples import seed_matmul
from tests.executors import product_tolerance

pytestmark = pytest.mark.usefixtures("launched_on")

SIZE, BLOCK = 128, 32
GRID = (SIZE // BLOCK * (SIZE // BLOCK),)


@pytest.fixture
def matrices():
    generator = np.random.default_rng(0)
    a, b = generator.random((2, SIZE, SIZE), dtype=np.float32)
    return a, b, np.zeros((SIZE, SIZE), np.float32)


def test_the_wrong_index_for_b_is_shown_at_the_product(matrices):
    with pytest.raises(tw.CompileError) as raised:
        seed_matmul.printed_matmul_kernel[GRID](*matrices, SIZE, SIZE, SIZE, BLOCK)
    first, source, carets, *_ = str(raised.value).splitlines()
    assert "seed_matmul.py:29:16: dot: inner sizes differ" in first
    assert "[32, 32]" in first
    assert "[1, 32]" in first
    assert source.strip() == "acc += tl.dot(a_tile, b_tile)"
    assert source[carets.index("^") : carets.rindex("^") + 1] == "tl.dot(a_tile, b_tile)"


@pytest.mark.parametrize(
    "kernel", [seed_matmul.printed_matmul_kernel, seed_matmul.matmul_kernel], ids=lambda k: k.name
)
def test_addresses_without_annotations_are_explained(matrices, kernel):
    addresses = [array.ctypes.data for array in matrices]
    with pytest.raises(tw.CompileError) as raised:
        kernel[GRID](*addresses, SIZE, SIZE, SIZE, BLOCK)
    message = str(raised.value)
    assert "load: expected a pointer, got i64" in message
    assert "`a_ptr` got the number 0x" in message
    assert "If that is a `data_ptr()`: pass the array itself" in message
    assert '`a_ptr: "*fp32"`' in message


def test_the_mistakes_leave_the_result_alone(matrices):
    a, b, c = matrices
    with pytest.raises(tw.CompileError):
        seed_matmul.printed_matmul_kernel[GRID](a, b, c, SIZE, SIZE, SIZE, BLOCK)
    assert not c.any()


def test_corrected_on_arrays(matrices):
    a, b, c = matrices
    seed_matmul.matmul_kernel[GRID](a, b, c, SIZE, SIZE, SIZE, BLOCK)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=product_tolerance(1e-5))


def test_corrected_on_tensors(matrices):
    torch = pytest.importorskip("torch")
    a, b, c = map(torch.from_numpy, matrices)
    seed_matmul.matmul_kernel[GRID](a, b, c, SIZE, SIZE, SIZE, BLOCK)
    torch.testing.assert_close(c, torch.matmul(a, b), atol=1e-5, rtol=product_tolerance(1e-5))


def test_corrected_on_addresses(matrices):
    a, b, c = matrices
    addresses = [array.ctypes.data for array in matrices]
    seed_matmul.addresses_matmul_kernel[GRID](*addresses, SIZE, SIZE, SIZE, BLOCK)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=product_tolerance(1e-5))


def test_corrected_in_eager_mode(matrices):
    a, b, c = (matrix[:64, :64].copy() for matrix in matrices)
    seed_matmul.matmul_kernel.debug[(4,)](a, b, c, 64, 64, 64, BLOCK)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=product_tolerance(1e-5))

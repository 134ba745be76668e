"""Kernels limited by memory, with the choices for GPUs, in the emulator, which finds races."""

import sys

import pytest
import torch

import tilewright as tw
from tests.library.checking import agrees, tensor
from tilewright import kernels

F = torch.nn.functional
pytestmark = pytest.mark.slow
DTYPES = ["float32", "bfloat16"]


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """Shapes of tiles are those for a GPU; the emulator has arrays of the host."""
    for name, module in sys.modules.items():
        if name.startswith("tilewright.kernels") and hasattr(module, "on_cpu"):
            monkeypatch.setattr(module, "on_cpu", lambda x: False)


def check(ours, exact, *inputs, **options):
    with tw.emulate("sm_90a", races=True):
        agrees(ours, exact, *inputs, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(dtype, smoothing):
    x, target = tensor((3, 5000), dtype), torch.tensor([3, 4999, -100])
    check(
        lambda x: kernels.cross_entropy(x, target, label_smoothing=smoothing),
        lambda x: F.cross_entropy(x, target, label_smoothing=smoothing),
        x,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(5, 300), (2, 4096), (2, 17000)])
def test_norms_of_rows(dtype, rows, columns):
    x, weight, bias = (tensor(shape, dtype) for shape in ((rows, columns), (columns,), (columns,)))
    check(
        lambda x, w, b: kernels.layer_norm(x, (columns,), w, b),
        lambda x, w, b: F.layer_norm(x, (columns,), w, b),
        *(x, weight, bias),
        factor=4,
    )
    check(
        lambda x, w: kernels.rms_norm(x, (columns,), w, 1e-5),
        lambda x, w: F.rms_norm(x, (columns,), w, 1e-5),
        *(x, weight),
        factor=4,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [2500, 17000])
def test_softmax(dtype, columns):
    for ours, exact in ((kernels.softmax, torch.softmax), (kernels.log_softmax, torch.log_softmax)):
        check(ours, lambda x, exact=exact: exact(x, -1), tensor((2, columns), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(
    ("multiprocessors", "places", "held"), [(132, 4096, 1 << 17), (1, 64, 1 << 17), (1, 64, 0)]
)
def test_norms_of_channels(monkeypatch, dtype, is_last, multiprocessors, places, held):
    tiles = sys.modules["tilewright.kernels.plane_tiles"]
    monkeypatch.setattr(tiles, "_MOST_HELD_BYTES", held)
    monkeypatch.setattr(tiles, "MULTIPROCESSORS", multiprocessors)
    monkeypatch.setattr(tiles, "_MOST_PLACES", places)
    x = tensor((2, 24, 15, 14), dtype, requires_grad=False)
    x = (x.to(memory_format=torch.channels_last) if is_last else x).requires_grad_()
    parameters = tensor((24,), dtype), tensor((24,), dtype)
    check(
        lambda x, w, b: kernels.group_norm(x, 3, w, b),
        lambda x, w, b: F.group_norm(x, 3, w, b),
        *(x, *parameters),
        factor=4,
    )
    check(
        lambda x, w, b: kernels.batch_norm(x, None, None, w, b, True),
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        *(x, *parameters),
        factor=4,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding_with_a_run_of_several_chunks(dtype):
    index = torch.cat([torch.full((150,), 3), torch.randint(0, 6, (60,))])
    check(
        lambda w: kernels.embedding(index, w),
        lambda w: F.embedding(index, w),
        tensor((7, 40), dtype),
        factor=3,
    )


def test_products_by_rows():
    starts = torch.tensor([0, 3, 3, 20, 29])
    column, rows = torch.randint(0, 9, (29,)), torch.repeat_interleave(starts.diff())

    def dense(values, b):
        matrix = torch.zeros(4, 9, dtype=values.dtype)
        return matrix.index_put((rows, column), values, accumulate=True) @ b

    values, b = tensor((29,)), tensor((9, 70))
    check(lambda values, b: kernels.spmm(starts, column, values, b), dense, values, b)


@pytest.mark.parametrize("steps", [5, 130])
def test_recurrences(steps):
    def exact(a, b):
        h = [b[:, 0]]
        for step in range(1, steps):
            h.append(a[:, step] * h[-1] + b[:, step])
        return torch.stack(h, 1)

    a = torch.rand((2, steps, 40)).requires_grad_()
    check(kernels.linear_recurrence, exact, a, tensor((2, steps, 40)), factor=4)

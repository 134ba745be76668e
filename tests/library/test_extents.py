"""Lengths, offsets and rows that arrays hold: those outside of their range are refused by name."""

import numpy as np
import pytest

from tilewright import kernels

torch = pytest.importorskip("torch")


def ones(*shape):
    return torch.ones(shape)


def whole(*numbers):
    return torch.tensor(numbers)


def int32(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


Q = ones(2, 2, 4, 8)
ROWS = ones(5, 2, 8)
PAGES = ones(4, 16, 2, 8)
GRU = [ones(9, 2), ones(9, 3), ones(9), ones(9)]


def varlen(starts, longest=4):
    return kernels.varlen_attention(ROWS, ROWS, ROWS, starts, int32(0, 2, 5), longest, 3)


# What is outside of its range, by what is said of it.
WRONG = {
    "`lengths` has 70000; integers from 0 to 9 are needed": lambda: kernels.segment_reduce(
        ones(9, 2), "sum", lengths=whole(3, 0, 70000)
    ),
    "`lengths` add up to 4, and `data` has 9 rows": lambda: kernels.segment_reduce(
        ones(9, 2).numpy(), "sum", lengths=np.array([3, 1])
    ),
    "`offsets` has 10; integers from 0 to 9": lambda: kernels.segment_reduce(
        ones(9, 2), "sum", offsets=whole(0, 10)
    ),
    "`offsets` has an integer that is less than the one before": lambda: kernels.segment_reduce(
        ones(9, 2), "sum", offsets=whole(0, 5, 3, 9)
    ),
    "`offs` has 9; integers from 0 to 4": lambda: kernels.grouped_mm(
        ones(4, 3), ones(2, 3, 5), offs=int32(2, 9)
    ),
    "`offs` has an integer that is less": lambda: kernels.grouped_mm(
        ones(4, 3), ones(2, 3, 5), offs=int32(4, 2)
    ),
    "`crow_indices` has 7; integers from 0 to 2": lambda: kernels.spmm(
        whole(0, 1, 7), whole(0, 1), ones(2), ones(3, 4)
    ),
    "`crow_indices` begins with 0 and ends with 1; 0 and 2": lambda: kernels.sddmm(
        whole(0, 1, 1), whole(0, 1), ones(2, 3), ones(3, 4)
    ),
    "`row_indices` has 9; integers from 0 to 2": lambda: kernels.coo_to_csr(
        whole(0, 9), whole(0, 1), ones(2), 3
    ),
    "`lengths` has -1; integers from 0 to 5": lambda: kernels.LSTM(3, 4, batch_first=True)(
        ones(2, 5, 3), lengths=[-1, 9]
    ),
    "`lengths` has 4; integers from 0 to 3": lambda: kernels.gru(
        ones(3, 2, 2), None, GRU, lengths=whole(4, 3)
    ),
    "`key_lengths` has 5; integers from 0 to 4": lambda: kernels.attention(
        Q, Q, Q, key_lengths=int32(4, 5)
    ),
    "`cu_seq_q` has 6; integers from 0 to 5": lambda: varlen(int32(0, 2, 6)),
    "`max_q` is 2, and a sequence of `cu_seq_q` has 3": lambda: varlen(int32(0, 2, 5), 2),
    "`lengths` has 33; integers from 0 to 32": lambda: kernels.paged_attention(
        ones(1, 2, 8), PAGES, PAGES, int32(0, 1).view(1, 2), int32(33)
    ),
    "`lengths` has 5; integers from 0 to 4": lambda: kernels.decode_attention(
        ones(2, 2, 8), Q, Q, int32(4, 5)
    ),
    "`lengths` come with a padded `input`": lambda: kernels.GRU(3, 4)(
        torch.nn.utils.rnn.pack_sequence([ones(2, 3), ones(1, 3)]), lengths=[2, 1]
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_numbers_out_of_range_are_refused(said):
    with pytest.raises(ValueError, match="^" + said):
        WRONG[said]()


def test_numbers_at_the_ends_of_their_range_are_right():
    offsets = kernels.segment_reduce(ones(9, 2), "sum", offsets=whole(2, 2, 9))
    assert offsets[:, 0].tolist() == [0, 7]
    assert kernels.grouped_mm(ones(4, 3), ones(2, 3, 5), offs=int32(0, 4)).shape == (4, 5)
    y, _ = kernels.GRU(3, 4)(ones(5, 2, 3), lengths=[0, 5])
    assert not y[:, 0].any()
    assert y[:, 1].all()
    assert kernels.coo_to_csr(whole().long(), whole().long(), ones(0), 0)[0].tolist() == [0]


def test_what_is_traced_is_not_looked_at():
    """A compiled function goes on without a break; what is no row is left out."""
    torch.compiler.reset()

    def sums(data, lengths):
        return kernels.segment_reduce(data, "sum", lengths=lengths)

    compiled = torch.compile(sums, fullgraph=True, backend="aot_eager")
    assert compiled(ones(9, 2), whole(3, 8))[:, 0].tolist() == [3, 6]
    fake_mode = torch._subclasses.FakeTensorMode()
    with fake_mode:
        assert kernels.segment_reduce(torch.ones(9, 2), "sum", lengths=torch.ones(2).long()).ndim
    exact = torch.func.grad(lambda x: sums(x, whole(3, 6)).sum())(ones(9, 2))
    assert exact.eq(1).all()

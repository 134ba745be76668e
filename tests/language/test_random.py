import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, scalar

ALL = 0xFFFFFFFF


# The known answers that come with Random123: counter, key, result.
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([ALL] * 4, [ALL] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_4x32_10(counter, key, expected):
    result = tl.philox_impl(*(scalar(x, "u32") for x in (*counter, *key)))
    assert " ".join(f"{int(x):08x}" for x in result) == expected


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (
            [0] * 4,
            [0] * 2,
            "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b",
        ),
        (
            [2**64 - 1] * 4,
            [2**64 - 1] * 2,
            "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0",
        ),
    ],
)
def test_philox_4x64_10(counter, key, expected):
    result = tl.philox_impl(*(scalar(x, "u64") for x in (*counter, *key)))
    assert " ".join(f"{int(x):016x}" for x in result) == expected


def philox(counter, key):
    """Philox 4x32-10 in Python's integers."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        high, low = divmod(0xD2511F53 * a, 2**32)
        high2, low2 = divmod(0xCD9E8D57 * c, 2**32)
        a, b, c, d = high2 ^ b ^ k, low2, high ^ d ^ m, low
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return a, b, c, d


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**40 + 3, -5])
def test_a_seed_fills_the_key_and_an_offset_the_counter(seed):
    wide = seed % 2**64
    key = (wide % 2**32, wide >> 32)
    expected = [philox((i, 0, 0, 0), key) for i in range(4)]
    result = tl.randint4x(seed, tl.arange(0, 4))
    assert np.array_equal(np.stack([array(x) for x in result], 1), expected)
    assert tl.randint(seed, tl.arange(0, 4)).dtype is tl.uint32
    assert array(tl.randint(seed, tl.arange(0, 4))).tolist() == [row[0] for row in expected]


def test_wide_offsets_use_two_words_of_the_counter():
    offset = tl.arange(0, 2).to(tl.int64) + (5 << 32)
    assert array(tl.randint(1, offset)).tolist() == [
        philox((i, 5, 0, 0), (1, 0))[0] for i in range(2)
    ]


def test_fewer_rounds():
    few = array(tl.randint(1, tl.arange(0, 4), n_rounds=6))
    assert not np.array_equal(few, array(tl.randint(1, tl.arange(0, 4))))


def test_uniform_numbers_are_in_the_half_open_interval():
    edges = [0, 1, 2**31 - 1, 2**31, 2**32 - 1]
    for x in edges:
        number = float(tl.uint_to_uniform_float(scalar(x, "u32")))
        folded = x if x < 2**31 else 2**32 - 1 - x
        assert number == np.float32(np.float32(folded) * np.float32(4.6566127342e-10))
        assert 0 <= number < 1
    assert 0 <= float(tl.uint_to_uniform_float(scalar(2**63 - 1, "u64"))) < 1


def test_distributions():
    offsets = tl.arange(0, 4096)
    uniform = array(tl.rand(42, offsets))
    assert uniform.dtype == np.float32
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1
    normal = np.concatenate([array(x) for x in tl.randn4x(42, offsets)])
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    assert np.array_equal(array(tl.rand4x(42, offsets)[0]), uniform)
    first, _ = tl.pair_uniform_to_normal(*tl.rand4x(42, offsets)[:2])
    assert np.array_equal(array(tl.randn(42, offsets)), array(first))

"""Matrix products whose operands are loaded, and whose result is stored, by tensor descriptors."""

import triton
import triton.language as tl


@triton.jit
def place_of_tile(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of a tile: down `GROUP_M` tiles, then one to the right, to share the cache."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group_size = GROUP_M * tiles_n
    first_m = tile // group_size * GROUP_M
    height = min(tiles_m - first_m, GROUP_M)
    in_group = tile % group_size
    return first_m + in_group % height, in_group // height


@triton.jit
def load_right(b, k, column, IS_TRANSPOSED: tl.constexpr):
    """A tile of the right operand, which lies in memory as (K, N), or transposed as (N, K)."""
    return tl.trans(b.load([column, k])) if IS_TRANSPOSED else b.load([k, column])


@triton.jit
def tile_matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    IS_TRANSPOSED: tl.constexpr,
    IS_INTEGER: tl.constexpr,
):
    """One tile a program."""
    tile_m, tile_n = place_of_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M
    column = tile_n * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32 if IS_INTEGER else tl.float32)
    for k in range(0, K, BLOCK_K):
        left = a.load([row, k])
        right = load_right(b, k, column, IS_TRANSPOSED)
        acc = tl.dot(left, right, acc, out_dtype=acc.dtype)
    c.store([row, column], acc.to(c.dtype))


@triton.jit
def persistent_matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    IS_TRANSPOSED: tl.constexpr,
    IS_INTEGER: tl.constexpr,
    HALVES: tl.constexpr,
):
    """Each of as many programs as there are multiprocessors computes tiles until none is left.

    With `HALVES` a tile is stored in two parts, which takes half the shared memory.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    # Counted apart from the loop's own number, so that the store of a tile does not keep what
    # the loads of the next tile need.
    stored = tl.program_id(0) - PROGRAMS
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        tile_m, tile_n = place_of_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row = tile_m * BLOCK_M
        column = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32 if IS_INTEGER else tl.float32)
        for step in range(steps):
            left = a.load([row, step * BLOCK_K])
            right = load_right(b, step * BLOCK_K, column, IS_TRANSPOSED)
            acc = tl.dot(left, right, acc, out_dtype=acc.dtype)
        stored += PROGRAMS
        stored_m, stored_n = place_of_tile(stored, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        if HALVES:
            halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            first, second = tl.split(halves)
            c.store([stored_m * BLOCK_M, stored_n * BLOCK_N], first.to(c.dtype))
            middle = stored_n * BLOCK_N + BLOCK_N // 2
            c.store([stored_m * BLOCK_M, middle], second.to(c.dtype))
        else:
            c.store([stored_m * BLOCK_M, stored_n * BLOCK_N], acc.to(c.dtype))

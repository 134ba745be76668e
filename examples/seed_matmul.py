"""A first matmul: as it is often printed, with two mistakes, and corrected, in two forms."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def printed_matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_SIZE: tl.constexpr):
    """Wrong: the rows of `b_tile` miss a `[:, None]`."""
    # Define pointers to tile elements
    pid = tl.program_id(axis=0)
    grid_x = pid % (M // BLOCK_SIZE)
    grid_y = pid // (M // BLOCK_SIZE)

    # Calculate row and column indices
    row = grid_x * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    col = grid_y * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)

    # Initialize accumulator
    acc = tl.zeros((BLOCK_SIZE, BLOCK_SIZE), dtype=tl.float32)

    # Loop over K dimension
    for k in range(0, K, BLOCK_SIZE):
        # Load tiles from A and B
        a_tile = tl.load(a_ptr + row[:, None] * K + (k + tl.arange(0, BLOCK_SIZE)))
        b_tile = tl.load(b_ptr + (k + tl.arange(0, BLOCK_SIZE)) * N + col[None, :])

        # Perform matrix multiplication
        acc += tl.dot(a_tile, b_tile)

    # Store result to C
    tl.store(c_ptr + row[:, None] * N + col[None, :], acc)


@tw.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_SIZE: tl.constexpr):
    """`c = a @ b`; `BLOCK_SIZE` divides M, N and K, and the grid has one axis."""
    pid = tl.program_id(axis=0)
    grid_x = pid % (M // BLOCK_SIZE)
    grid_y = pid // (M // BLOCK_SIZE)
    row = grid_x * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    col = grid_y * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    acc = tl.zeros((BLOCK_SIZE, BLOCK_SIZE), dtype=tl.float32)
    for k in range(0, K, BLOCK_SIZE):
        inner = k + tl.arange(0, BLOCK_SIZE)
        a_tile = tl.load(a_ptr + row[:, None] * K + inner[None, :])
        b_tile = tl.load(b_ptr + inner[:, None] * N + col[None, :])
        acc += tl.dot(a_tile, b_tile)
    tl.store(c_ptr + row[:, None] * N + col[None, :], acc)


@tw.jit
def addresses_matmul_kernel(
    a_ptr: "*fp32",  # noqa: F722 - the type of what is at the address, for the kernel to read
    b_ptr: "*fp32",  # noqa: F722
    c_ptr: "*fp32",  # noqa: F722
    M,
    N,
    K,
    BLOCK_SIZE: tl.constexpr,
):
    """As `matmul_kernel`; the annotations say what is at the addresses that a caller passes."""
    pid = tl.program_id(axis=0)
    grid_x = pid % (M // BLOCK_SIZE)
    grid_y = pid // (M // BLOCK_SIZE)
    row = grid_x * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    col = grid_y * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    acc = tl.zeros((BLOCK_SIZE, BLOCK_SIZE), dtype=tl.float32)
    for k in range(0, K, BLOCK_SIZE):
        inner = k + tl.arange(0, BLOCK_SIZE)
        a_tile = tl.load(a_ptr + row[:, None] * K + inner[None, :])
        b_tile = tl.load(b_ptr + inner[:, None] * N + col[None, :])
        acc += tl.dot(a_tile, b_tile)
    tl.store(c_ptr + row[:, None] * N + col[None, :], acc)


def matmul(a, b, c, block_size=32):
    """`c = a @ b`, for contiguous matrices that square tiles divide."""
    (m, k), n = a.shape, b.shape[1]
    matmul_kernel[(m // block_size * (n // block_size),)](a, b, c, m, n, k, BLOCK_SIZE=block_size)

"""Which thread holds which element of a matrix, for `mma` and `wgmma`.

A register of 32 bits (64 for f64) holds `per_register` neighbours along K of A and B, and along N
of the accumulators where they are 16 bits wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from tilewright.emulator.floats import Array, decode

__all__ = ["Fragment", "a_fragment", "accumulator_fragment", "b_fragment", "to_values"]


@dataclass(frozen=True)
class Fragment:
    """Row and column of each (lane, register, element) of a warp's part of a matrix."""

    rows: Array
    columns: Array
    shape: tuple[int, int]

    def collect(self, held: Array) -> Array:
        """Return dense matrices (warps, rows, columns) of values (warps, lanes, registers, e)."""
        dense = np.zeros((held.shape[0], *self.shape), held.dtype)
        dense[:, self.rows, self.columns] = held
        return dense

    def distribute(self, dense: Array) -> Array:
        """Return what each (warp, lane, register, element) holds of dense matrices."""
        held: Array = dense[:, self.rows, self.columns]
        return held


def _fragment(row: Array, column: Array, shape: tuple[int, int]) -> Fragment:
    rows, columns = np.broadcast_arrays(row, column)
    return Fragment(rows, columns, shape)


def _parts(registers: int, per_register: int) -> tuple[Array, Array, Array]:
    lane = np.arange(32)[:, None, None]
    register = np.arange(registers)[None, :, None]
    element = np.arange(per_register)[None, None, :]
    return lane, register, element


@cache
def a_fragment(rows: int, columns: int, per_register: int) -> Fragment:
    """Return the layout of A: 8 lanes along M, 4 along K, then M by 8, then K."""
    registers = rows * columns // (32 * per_register)
    lane, register, element = _parts(registers, per_register)
    halves = rows // 8
    row = lane // 4 + 8 * (register % halves)
    column = lane % 4 * per_register + element + register // halves * 4 * per_register
    return _fragment(row, column, (rows, columns))


@cache
def b_fragment(rows: int, columns: int, per_register: int) -> Fragment:
    """Return the layout of B (K by N): 4 lanes along K, 8 along N, then K."""
    registers = rows * columns // (32 * per_register)
    lane, register, element = _parts(registers, per_register)
    row = lane % 4 * per_register + element + register * 4 * per_register
    return _fragment(row, lane // 4, (rows, columns))


@cache
def accumulator_fragment(rows: int, columns: int, per_register: int) -> Fragment:
    """Return the layout of C and D: pairs along N, 4 lanes, M by 8, then N by 8."""
    registers = rows * columns // (32 * per_register)
    lane, register, element = _parts(registers, per_register)
    index = register * per_register + element
    halves = rows // 8
    row = lane // 4 + 8 * (index // 2 % halves)
    column = 2 * (lane % 4) + index % 2 + index // (2 * halves) * 8
    return _fragment(row, column, (rows, columns))


def to_values(held: Array, type: str) -> Array:
    """Return float64 values of bit patterns of an operand's type."""
    if type in {"s8", "u8", "s32"}:
        return held.view(f"{'i' if type[0] == 's' else 'u'}{int(type[1:]) // 8}").astype(np.float64)
    return decode(held, type).astype(np.float64)

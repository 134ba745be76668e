"""Runs the generated PTX on the CPU, for all threads of some blocks at once, with NumPy."""

from tilewright.emulator.emulator import Emulator, LaunchOptions
from tilewright.emulator.memory import Buffer
from tilewright.emulator.program import EmulatorError
from tilewright.emulator.report import Finding, LineCounts, Report
from tilewright.emulator.tensor_map import TensorMap, encode_tensor_map

__all__ = [
    "Buffer",
    "Emulator",
    "EmulatorError",
    "Finding",
    "LaunchOptions",
    "LineCounts",
    "Report",
    "TensorMap",
    "encode_tensor_map",
]

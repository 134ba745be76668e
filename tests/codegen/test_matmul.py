"""The generated tile product against NumPy, for every type, orientation and awkward size."""

from __future__ import annotations

import ctypes
import itertools
import random
from dataclasses import dataclass, replace
from typing import ClassVar

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.cpu.matmul import dot_function
from tilewright.codegen.cpu.matmul_shape import (
    DotShape,
    DotTarget,
    DotType,
    preferred_row_stride,
)
from tilewright.errors import InternalError

SIZES = (1, 2, 3, 5, 8, 16, 17, 33, 64)
NUMPY_TYPES = {
    DotType.DOUBLE: np.float64,
    DotType.FLOAT: np.float32,
    DotType.HALF: np.float16,
    DotType.BFLOAT: ml_dtypes.bfloat16,
    DotType.INT8: np.int8,
    DotType.UINT8: np.uint8,
    DotType.INT32: np.int32,
}
TYPE_PAIRS = (
    (DotType.FLOAT, DotType.FLOAT),
    (DotType.DOUBLE, DotType.DOUBLE),
    (DotType.HALF, DotType.FLOAT),
    (DotType.HALF, DotType.HALF),
    (DotType.BFLOAT, DotType.FLOAT),
    (DotType.INT8, DotType.INT32),
    (DotType.UINT8, DotType.INT32),
)
MIXED_TYPES = (
    (DotType.HALF, DotType.FLOAT, DotType.FLOAT),
    (DotType.FLOAT, DotType.BFLOAT, DotType.HALF),
    (DotType.UINT8, DotType.INT8, DotType.INT32),
    (DotType.INT8, DotType.UINT8, DotType.INT32),
)
# What each level of x86-64 offers, in LLVM's words; the machine that runs the tests may lack it.
AVX2 = "sse2 avx avx2 fma f16c"
AVX512 = f"{AVX2} avx512f avx512bw avx512vl avx512dq"
X86_LEVELS = {
    "sse2": ("sse2", 128),
    "avx2": (AVX2, 256),
    "avx512": (AVX512, 512),
    "avx512-pairs": (f"{AVX512} avx512vnni avx512bf16", 512),
    "amx": (AVX512, 512),
}


GUARD = 77


def host_levels() -> list[str]:
    if not llvm.get_default_triple().startswith("x86_64"):
        return []
    host = {name for name, on in llvm.get_host_cpu_features().items() if on}
    return [level for level, (needs, _) in X86_LEVELS.items() if set(needs.split()) <= host]


def dot_target(level: str) -> DotTarget:
    features, vector_bits = X86_LEVELS[level]
    return DotTarget(frozenset(features.split()), vector_bits, has_amx=level == "amx")


def target_machine(triple: str, cpu: str, features: str, *, jit: bool) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3, jit=jit
    )


def optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    module = llvm.parse_assembly(header + text.replace("define internal", "define"))
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(module, builder)
    return module


def call_dot(text: str, level: str, arguments: list[int]) -> None:
    """Compiles ``@dot`` for this level of the machine at hand, and calls it."""
    features = ",".join(f"+{name}" for name in X86_LEVELS[level][0].split())
    machine = target_machine(llvm.get_default_triple(), "x86-64", features, jit=True)
    with llvm.create_mcjit_compiler(optimised(text, machine), machine) as engine:
        engine.finalize_object()
        kinds = [ctypes.c_void_p, ctypes.c_int64] * 4 + [ctypes.c_void_p]
        ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("dot"))(*arguments)


def aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :]


def guarded(values: np.ndarray, gap: int) -> np.ndarray:
    """Rows with a gap after each; what lies there must be neither used nor changed."""
    guard = GUARD if values.dtype.kind in "iu" else np.nan
    rows = np.full((values.shape[0], values.shape[1] + gap), guard, values.dtype)
    rows[:, : values.shape[1]] = values
    return rows


class Tiles:
    """The tile registers of AMX, in NumPy, behind the names that generated code calls."""

    ROWS, ROW_BYTES = 16, 64
    ARGUMENTS: ClassVar = {
        "tilezero": (ctypes.c_int8,),
        "tileloadd64": (ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64),
        "tilestored64": (ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64),
        "tdpbf16ps": (ctypes.c_int8,) * 3,
        "tdpbssd": (ctypes.c_int8,) * 3,
        "tdpbuud": (ctypes.c_int8,) * 3,
        "tdpbsud": (ctypes.c_int8,) * 3,
        "tdpbusd": (ctypes.c_int8,) * 3,
    }

    def __init__(self) -> None:
        self.registers = np.zeros((8, self.ROWS, self.ROW_BYTES), np.uint8)
        self.callbacks = []
        for name, arguments in self.ARGUMENTS.items():
            callback = ctypes.CFUNCTYPE(None, *arguments)(getattr(self, name))
            self.callbacks.append(callback)
            llvm.add_symbol(f"emulated_{name}", ctypes.cast(callback, ctypes.c_void_p).value)

    def tilezero(self, register: int) -> None:
        self.registers[register] = 0

    def tileloadd64(self, register: int, pointer: int, stride: int) -> None:
        for row in range(self.ROWS):
            memory = ctypes.string_at(pointer + row * stride, self.ROW_BYTES)
            self.registers[register, row] = np.frombuffer(memory, np.uint8)

    def tilestored64(self, register: int, pointer: int, stride: int) -> None:
        for row in range(self.ROWS):
            stored = self.registers[register, row].tobytes()
            ctypes.memmove(pointer + row * stride, stored, self.ROW_BYTES)

    def tdpbf16ps(self, total: int, a: int, b: int) -> None:
        self.multiply(total, a, b, (ml_dtypes.bfloat16, ml_dtypes.bfloat16), np.float32)

    def tdpbssd(self, total: int, a: int, b: int) -> None:
        self.multiply(total, a, b, (np.int8, np.int8), np.int32)

    def tdpbuud(self, total: int, a: int, b: int) -> None:
        self.multiply(total, a, b, (np.uint8, np.uint8), np.int32)

    def tdpbsud(self, total: int, a: int, b: int) -> None:
        self.multiply(total, a, b, (np.int8, np.uint8), np.int32)

    def tdpbusd(self, total: int, a: int, b: int) -> None:
        self.multiply(total, a, b, (np.uint8, np.int8), np.int32)

    def multiply(
        self, total: int, a: int, b: int, operands: tuple[type, type], result: type
    ) -> None:
        left = self.registers[a].view(operands[0]).astype(result)
        groups = self.registers[b].view(operands[1]).reshape(self.ROWS, 16, -1)
        right = groups.transpose(0, 2, 1).reshape(-1, 16).astype(result)
        with np.errstate(invalid="ignore"):
            self.registers[total].view(result)[:] += left @ right


TILES = Tiles()


def emulated_amx(text: str) -> str:
    for name, arguments in Tiles.ARGUMENTS.items():
        kinds = [
            "ptr" if kind is ctypes.c_void_p else f"i{8 * ctypes.sizeof(kind)}"
            for kind in arguments
        ]
        text = text.replace(f"@llvm.x86.{name}", f"@emulated_{name}")
        text += f"declare void @emulated_{name}({', '.join(kinds)})\n"
    kept = (line for line in text.splitlines() if "tilecfg" not in line)
    return "\n".join(line for line in kept if "tilerelease" not in line)


@dataclass(frozen=True)
class Case:
    shape: DotShape
    level: str
    strides_known: bool
    in_place: bool

    def random_matrix(
        self, rng: np.random.Generator, rows: int, columns: int, element: DotType
    ) -> np.ndarray:
        dtype = NUMPY_TYPES[element]
        if element.is_integer:
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, (rows, columns), dtype, endpoint=True)
        return rng.standard_normal((rows, columns)).astype(dtype)

    def check(self) -> None:
        shape, rng = self.shape, np.random.default_rng(self.shape.m * 7 + self.shape.n)
        a = self.random_matrix(rng, shape.m, shape.k, shape.a_type)
        b = self.random_matrix(rng, shape.k, shape.n, shape.b_type)
        acc = self.random_matrix(rng, shape.m, shape.n, shape.acc_type)
        a_rows = guarded(a.T if shape.a_transposed else a, 3)
        b_rows = guarded(b.T if shape.b_transposed else b, 5)
        start = guarded(acc, 1)
        end = start if self.in_place else guarded(np.zeros_like(acc), 2)
        self.call(a_rows, b_rows, start, end)
        beyond = end[:, shape.n :].astype(np.float64)
        assert (np.isnan(beyond) | (beyond == GUARD)).all()
        self.compare(a, b, acc, end[:, : shape.n])

    def call(self, *matrices: np.ndarray) -> None:
        strides = [matrix.shape[1] for matrix in matrices]
        shape, target = self.shape, dot_target(self.level)
        if self.strides_known:
            names = (f"{operand}_row_stride" for operand in ("a", "b", "acc_in", "acc_out"))
            shape = replace(shape, **dict(zip(names, strides, strict=True)))
        code = dot_function(shape, "dot", target)
        scratch = aligned(code.scratch_bytes + 64)
        # NaN in every float type, so that lanes read before they are written show.
        scratch[:] = 0xFF
        places = [matrix.ctypes.data for matrix in matrices]
        pairs = itertools.chain.from_iterable(zip(places, strides, strict=True))
        text = emulated_amx(code.text) if target.has_amx else code.text
        call_dot(text, self.level, [*pairs, scratch.ctypes.data])
        assert (scratch[code.scratch_bytes : code.scratch_bytes + 64] == 0xFF).all()

    def compare(self, a: np.ndarray, b: np.ndarray, acc: np.ndarray, result: np.ndarray) -> None:
        exact = np.int64 if self.shape.acc_type is DotType.INT32 else np.float64
        a, b, acc = a.astype(exact), b.astype(exact), acc.astype(exact)
        if self.shape.acc_is_zero:
            acc = np.zeros_like(acc)
        expected = a @ b + acc
        if exact is np.int64:
            np.testing.assert_array_equal(result, expected.astype(np.int32))
            return
        unit = 2.0**-52 if self.shape.acc_type is DotType.DOUBLE else 2.0**-23
        bound = (self.shape.k + 2) * unit * (np.abs(a) @ np.abs(b) + np.abs(acc))
        if self.shape.acc_type is DotType.HALF:
            bound += 2.0**-11 * np.abs(expected) + 2.0**-25
        assert (np.abs(result.astype(np.float64) - expected) <= bound).all()


def sampled_cases(count: int) -> list[Case]:
    """All types, orientations and stride kinds, each with ``count`` draws of the rest."""
    draw = random.Random(20)
    levels, cases = host_levels(), []
    flags = itertools.product(TYPE_PAIRS, (False, True), (False, True), (False, True))
    for (operand, acc), a_transposed, b_transposed, strides_known in flags:
        for _ in range(count if levels else 0):
            m, n, k = (draw.choice(SIZES) for _ in range(3))
            types = (operand, operand, acc)
            zero, in_place = draw.choice(((False, False), (False, True), (True, False)))
            shape = DotShape(m, n, k, *types, a_transposed, b_transposed, acc_is_zero=zero)
            cases.append(Case(shape, draw.choice(levels), strides_known, in_place))
    return cases


def name_of(case: Case) -> str:
    shape = case.shape
    sizes = f"{shape.m}x{shape.n}x{shape.k}"
    orientation = "nt"[shape.a_transposed] + "nt"[shape.b_transposed]
    strides = "known" if case.strides_known else "runtime"
    return f"{sizes}-{shape.a_type}-{shape.acc_type}-{orientation}-{strides}-{case.level}"


@pytest.mark.parametrize("case", sampled_cases(3), ids=name_of)
def test_sampled_sizes(case: Case) -> None:
    case.check()


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled_cases(40), ids=name_of)
def test_many_sampled_sizes(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("level", host_levels())
@pytest.mark.parametrize("types", MIXED_TYPES)
def test_operands_of_two_types(types: tuple[DotType, DotType, DotType], level: str) -> None:
    shape = DotShape(17, 33, 35, *types, a_transposed=True)
    Case(shape, level, strides_known=False, in_place=False).check()


@pytest.mark.parametrize("level", host_levels())
@pytest.mark.parametrize(
    ("operand", "acc"),
    [(DotType.FLOAT, DotType.FLOAT), (DotType.BFLOAT, DotType.FLOAT)],
)
def test_a_whole_block(operand: DotType, acc: DotType, level: str) -> None:
    shape = DotShape(128, 128, 96, operand, operand, acc, b_transposed=True)
    Case(shape, level, strides_known=True, in_place=True).check()


@pytest.mark.parametrize("level", host_levels())
def test_every_half_survives_the_accumulator(level: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(16, -1)
    result = np.zeros_like(halves)
    nothing = np.zeros(4096, np.float16)
    types = (DotType.HALF,) * 3
    code = dot_function(DotShape(16, 4096, 1, *types), "dot", dot_target(level))
    scratch = aligned(code.scratch_bytes)
    places = [(nothing, 1), (nothing, 4096), (halves, 4096), (result, 4096)]
    arguments = [value for matrix, stride in places for value in (matrix.ctypes.data, stride)]
    call_dot(code.text, level, [*arguments, scratch.ctypes.data])
    # Equal as numbers: -0 + 0 is 0, and a NaN is only asked to stay one.
    np.testing.assert_array_equal(result, halves)


@pytest.mark.parametrize("level", host_levels())
def test_integer_sums_wrap(level: str) -> None:
    shape = DotShape(1, 1, 64, DotType.INT8, DotType.INT8, DotType.INT32)
    case = Case(shape, level, strides_known=False, in_place=True)
    a = np.full((1, 64), -128, np.int8)
    acc = np.full((1, 1), 2**31 - 1, np.int32)
    case.call(a, a.reshape(64, 1), acc, acc)
    assert acc[0, 0] == 64 * 2**14 - 2**31 - 1


@pytest.mark.parametrize(
    ("operand", "acc", "expected"),
    [
        (DotType.BFLOAT, DotType.FLOAT, "tdpbf16ps"),
        (DotType.INT8, DotType.INT32, "tdpbssd"),
        (DotType.UINT8, DotType.INT32, "tdpbuud"),
        (DotType.FLOAT, DotType.FLOAT, "vfmadd"),
    ],
)
def test_sapphire_rapids_selects(operand: DotType, acc: DotType, expected: str) -> None:
    target = DotTarget(frozenset((AVX512 + " avx512bf16 avx512vnni").split()), 512, has_amx=True)
    code = dot_function(DotShape(128, 64, 96, operand, operand, acc), "dot", target)
    machine = target_machine("x86_64-unknown-linux-gnu", "sapphirerapids", "", jit=False)
    assert expected in machine.emit_assembly(optimised(code.text, machine))


@pytest.mark.parametrize(("operand", "acc"), TYPE_PAIRS)
def test_neon_needs_no_library(operand: DotType, acc: DotType) -> None:
    shape = DotShape(64, 33, 17, operand, operand, acc, b_transposed=True)
    code = dot_function(shape, "dot", DotTarget(frozenset({"neon"}), 128))
    machine = target_machine("aarch64-unknown-linux-gnu", "neoverse-n1", "", jit=False)
    assembly = machine.emit_assembly(optimised(code.text, machine))
    assert "mla" in assembly
    assert "\tbl\t" not in assembly


def test_float_block_keeps_its_sums_in_registers() -> None:
    strides = (preferred_row_stride(128, 4),) * 4
    types = (DotType.FLOAT,) * 3
    code = dot_function(
        DotShape(112, 128, 128, *types, False, False, *strides), "dot", dot_target("avx512")
    )
    machine = target_machine("x86_64-unknown-linux-gnu", "skylake-avx512", "", jit=False)
    assembly = machine.emit_assembly(optimised(code.text, machine))
    assert "Spill" not in assembly
    assert "%zmm30" in assembly
    assert "%ymm" not in assembly


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((DotType.INT8, DotType.FLOAT, DotType.FLOAT), "no product of i8 and float"),
        (
            (DotType.DOUBLE, DotType.FLOAT, DotType.DOUBLE),
            "no product of double and float",
        ),
        ((DotType.INT32, DotType.INT32, DotType.INT32), "no product of i32 and i32"),
        ((DotType.FLOAT, DotType.FLOAT, DotType.BFLOAT), "float cannot be summed in bf16"),
        ((DotType.INT8, DotType.INT8, DotType.HALF), "i8 cannot be summed in half"),
    ],
)
def test_types_without_a_product(types: tuple[DotType, DotType, DotType], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        dot_function(DotShape(16, 16, 16, *types), "dot", dot_target("avx2"))


def test_preferred_row_stride_spreads_rows_over_cache_sets() -> None:
    for columns, element_bytes in itertools.product((1, 16, 33, 64, 128, 512), (1, 2, 4, 8)):
        stride = preferred_row_stride(columns, element_bytes)
        assert stride >= columns
        assert stride * element_bytes % 128 == 64

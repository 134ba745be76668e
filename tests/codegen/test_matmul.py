"""The generated tile product against NumPy, for every type, orientation and awkward size."""

from __future__ import annotations

import ctypes
import itertools
import random
from dataclasses import dataclass, replace

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.cpu.matmul import DotShape, dot_function, preferred_row_stride
from tilewright.codegen.cpu.matmul_lanes import DotTarget, Element

SIZES = (1, 2, 3, 5, 8, 16, 17, 33, 64)
NUMPY_TYPES = {
    Element.DOUBLE: np.float64,
    Element.FLOAT: np.float32,
    Element.HALF: np.float16,
    Element.BFLOAT: ml_dtypes.bfloat16,
    Element.INT8: np.int8,
    Element.UINT8: np.uint8,
    Element.INT32: np.int32,
}
TYPE_PAIRS = (
    (Element.FLOAT, Element.FLOAT),
    (Element.DOUBLE, Element.DOUBLE),
    (Element.HALF, Element.FLOAT),
    (Element.HALF, Element.HALF),
    (Element.BFLOAT, Element.FLOAT),
    (Element.INT8, Element.INT32),
    (Element.UINT8, Element.INT32),
)
# What each level of x86-64 offers, in LLVM's words; the machine that runs the tests may lack it.
X86_LEVELS = {
    "sse2": ("sse2", 128),
    "avx2": ("sse2 avx avx2 fma f16c", 256),
    "avx512": ("sse2 avx avx2 fma f16c avx512f avx512bw avx512vl avx512dq", 512),
    "avx512-pairs": (
        "sse2 avx avx2 fma f16c avx512f avx512bw avx512vl avx512dq avx512vnni avx512bf16", 512
    ),
}


def host_levels() -> list[str]:
    if not llvm.get_default_triple().startswith("x86_64"):
        return []
    host = {name for name, on in llvm.get_host_cpu_features().items() if on}
    return [level for level, (needs, _) in X86_LEVELS.items() if set(needs.split()) <= host]


def dot_target(level: str) -> DotTarget:
    features, vector_bits = X86_LEVELS[level]
    return DotTarget(frozenset(features.split()), vector_bits)


def target_machine(features: str, triple: str, cpu: str, *, jit: bool) -> llvm.TargetMachine:
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


def aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :]


def guarded(values: np.ndarray, stride: int) -> np.ndarray:
    """The values in rows ``stride`` long; what lies between must be neither used nor changed."""
    poison = 77 if values.dtype.kind in "iu" else np.nan
    rows = np.full((values.shape[0], stride), poison, values.dtype)
    rows[:, : values.shape[1]] = values
    return rows


@dataclass(frozen=True)
class Case:
    shape: DotShape
    level: str
    strides_known: bool
    in_place: bool

    def random_matrix(self, rng: np.random.Generator, rows: int, columns: int,
                      element: Element) -> np.ndarray:
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
        a_rows = guarded(a.T if shape.a_transposed else a, (shape.m if shape.a_transposed else shape.k) + 3)
        b_rows = guarded(b.T if shape.b_transposed else b, (shape.k if shape.b_transposed else shape.n) + 5)
        start = guarded(acc, shape.n + 1)
        end = start if self.in_place else guarded(np.zeros_like(acc), shape.n + 2)
        self.call(a_rows, b_rows, start, end)
        beyond = end[:, shape.n :].astype(np.float64)
        assert (np.isnan(beyond) | (beyond == 77)).all()
        self.compare(a, b, acc, end[:, : shape.n])

    def call(self, *matrices: np.ndarray) -> None:
        strides = [matrix.shape[1] for matrix in matrices]
        shape = self.shape
        if self.strides_known:
            shape = replace(shape, a_row_stride=strides[0], b_row_stride=strides[1],
                            acc_in_row_stride=strides[2], acc_out_row_stride=strides[3])
        code = dot_function(shape, "dot", dot_target(self.level))
        features = ",".join(f"+{name}" for name in X86_LEVELS[self.level][0].split())
        machine = target_machine(features, llvm.get_default_triple(), "x86-64", jit=True)
        module = optimised(code.text, machine)
        with llvm.create_mcjit_compiler(module, machine) as engine:
            engine.finalize_object()
            kinds = [ctypes.c_void_p, ctypes.c_int64] * 4 + [ctypes.c_void_p]
            function = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("dot"))
            scratch = aligned(code.scratch_bytes + 64)
            scratch[code.scratch_bytes :] = 99
            arguments = [x for m, s in zip(matrices, strides, strict=True) for x in (m.ctypes.data, s)]
            function(*arguments, scratch.ctypes.data)
            assert (scratch[code.scratch_bytes : code.scratch_bytes + 64] == 99).all()

    def compare(self, a: np.ndarray, b: np.ndarray, acc: np.ndarray, result: np.ndarray) -> None:
        exact = np.int64 if self.shape.acc_type is Element.INT32 else np.float64
        a, b, acc = a.astype(exact), b.astype(exact), acc.astype(exact)
        if self.shape.acc_is_zero:
            acc = np.zeros_like(acc)
        expected = a @ b + acc
        if exact is np.int64:
            np.testing.assert_array_equal(result, expected.astype(np.int32))
            return
        unit = 2.0**-52 if self.shape.acc_type is Element.DOUBLE else 2.0**-23
        bound = (self.shape.k + 2) * unit * (np.abs(a) @ np.abs(b) + np.abs(acc))
        if self.shape.acc_type is Element.HALF:
            bound += 2.0**-11 * np.abs(expected) + 2.0**-25
        assert (np.abs(result.astype(np.float64) - expected) <= bound).all()


def sampled_cases(count: int) -> list[Case]:
    """All types, orientations and stride kinds, each with ``count`` sizes drawn by a fixed seed."""
    draw = random.Random(20)
    cases = []
    flags = itertools.product(TYPE_PAIRS, (False, True), (False, True), (False, True))
    for (operand, acc), a_transposed, b_transposed, strides_known in flags:
        for _ in range(count):
            m, n, k = (draw.choice(SIZES) for _ in range(3))
            zero, in_place = draw.choice(((False, False), (False, True), (True, False)))
            shape = DotShape(m, n, k, operand, operand, acc, a_transposed, b_transposed,
                             acc_is_zero=zero)
            cases += [Case(shape, level, strides_known, in_place) for level in host_levels()[-1:]]
    return cases


def name_of(case: Case) -> str:
    shape = case.shape
    orientation = "nt"[shape.a_transposed] + "nt"[shape.b_transposed]
    return (f"{shape.m}x{shape.n}x{shape.k}-{shape.a_type}-{shape.acc_type}-{orientation}-"
            f"{'known' if case.strides_known else 'runtime'}-{case.level}")


@pytest.mark.parametrize("case", sampled_cases(2), ids=name_of)
def test_sampled_sizes(case: Case) -> None:
    case.check()

"""Launchers: what each guard lets through, what is packed, references, and the error paths."""

import ctypes
import gc
import struct
import sys
import types
import weakref
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.fake_cuda import FAKE_KEYS, ON_CPU, ON_GPU, UNUSUAL
from tests.runtime.handwritten_kernels import load_kernels
from tilewright.errors import LaunchError
from tilewright.runtime import launcher as launcher_module
from tilewright.runtime import launcher_shared
from tilewright.runtime.launch_parameters import (
    AddressParameter,
    ArrayParameter,
    BoolParameter,
    ConstantParameter,
    FloatParameter,
    IntParameter,
    TupleParameter,
)
from tilewright.runtime.launcher import accept_torch, bind_launcher
from tilewright.runtime.pool import run_packed

# Copies the argument block from the second slot on to where the first one points.
COPY = """
define void @copy(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {{
  %p = load ptr, ptr %arguments
  %from = getelementptr i64, ptr %arguments, i64 1
  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %from, i64 {bytes}, i1 false)
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


class AssertionOfKernelError(Exception):
    """What `on_error` raises here."""


def fail(code):
    raise AssertionOfKernelError(code)


def make(parameters, kernel="empty", more="", scratch_bytes=0):
    return bind_launcher(
        load_kernels(more), kernel, parameters, scratch_bytes=scratch_bytes, on_error=fail
    )


def aligned(shape, dtype, offset_bytes=0):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 16 + offset_bytes
    return raw[start : start + size].view(dtype).reshape(shape)


def accepts(parameter, *values):
    """Return for each value whether a launcher with this one parameter takes it."""
    launch = make([parameter])
    answers = [launch(1, 1, 1, value) for value in values]
    assert all(answer is None or answer is NotImplemented for answer in answers)
    return [answer is None for answer in answers]


def packed(parameter, value):
    """Return the slot that a value gets, as 8 bytes."""
    parameters = [ArrayParameter("u8"), parameter]
    launch = make(parameters, "copy", COPY.format(bytes=8))
    slot = np.zeros(8, np.uint8)
    assert launch(1, 1, 1, slot, value) is None
    return slot.tobytes()


# ---- guards


def test_integers():
    class MyInt(int):
        pass

    low, high = -(2**31), 2**31 - 1
    fits = accepts(IntParameter(32), low, 0, 1, high, low - 1, high + 1, 2**200)
    assert fits == [True] * 4 + [False] * 3
    assert accepts(IntParameter(32), True, 1.0, "1", None, MyInt(1), np.int32(1)) == [False] * 6
    assert accepts(IntParameter(8, signed=False), 0, 255, -1, 256) == [True, True, False, False]
    assert accepts(IntParameter(64), -(2**63), 2**63 - 1, 2**63) == [True, True, False]
    unsigned = accepts(IntParameter(64, signed=False), 0, 2**64 - 1, -1, 2**64, True)
    assert unsigned == [True, True, False, False, False]


def test_integers_that_belong_to_another_specialisation():
    assert accepts(IntParameter(32, divisible_by_16=True), 0, 16, -32, 8) == [True] * 3 + [False]
    assert (
        accepts(IntParameter(32, divisible_by_16=False), 0, 16, -3, 8) == [False] * 2 + [True] * 2
    )
    assert accepts(IntParameter(32, excludes_one=True), 0, 1, 2) == [True, False, True]
    wide = IntParameter(64, excludes_narrower=True)
    values = [2**31 - 1, -(2**31), 2**31, -(2**31) - 1]
    assert accepts(wide, *values) == [False, False, True, True]
    unsigned = IntParameter(64, signed=False, excludes_narrower=True)
    assert accepts(unsigned, 2**63 - 1, 2**63, 2**64 - 1) == [False, True, True]


def test_floats_and_bools():
    assert accepts(FloatParameter(), 1.5, float("nan"), 1, True, np.float64(1)) == [
        *(True, True),
        *(False, False, False),
    ]
    assert accepts(BoolParameter(), True, False, 1, 0, None, np.True_) == [True] * 2 + [False] * 4


def test_addresses():
    assert accepts(AddressParameter(), 0, 2**63 - 1, 2**63, 1.0) == [True, True, False, False]
    aligned = AddressParameter(divisible_by_16=True)
    assert accepts(aligned, 4096, 4100, 0, 32) == [True, False, True, False]


def test_constants():
    assert accepts(ConstantParameter(1), 1, True, 1.0, 2) == [True, False, False, False]
    assert accepts(ConstantParameter(10**30), 10**30, 10**30 + 1) == [True, False]
    assert accepts(ConstantParameter(True), True, 1, False) == [True, False, False]
    assert accepts(ConstantParameter(None), None, 0) == [True, False]
    assert accepts(ConstantParameter("tf32"), "TF32".lower(), "ieee") == [True, False]
    dtype = np.dtype(np.float32)
    assert accepts(ConstantParameter(dtype), dtype, np.dtype(np.float64)) == [True, False]


class Pair(NamedTuple):
    x: int
    y: float


def test_constants_that_equal_others_without_being_the_same():
    assert accepts(ConstantParameter(0.0), 0.0, -0.0, 0, False) == [True, False, False, False]
    assert accepts(ConstantParameter(float("nan")), float("nan"), 1.0) == [True, False]
    shape = ConstantParameter((1, (2.0, "a"), ()))
    same = (1, (float("2"), "a"), ())
    others = [(True, (2.0, "a"), ()), (1, (2, "a"), ()), (1, (2.0, "a")), [1, (2.0, "a"), ()]]
    assert accepts(shape, same, *others) == [True, False, False, False, False]
    others = [Pair(True, 0.0), Pair(1, -0.0), Pair(1, 0), (1, 0.0)]
    assert accepts(ConstantParameter(Pair(1, 0.0)), Pair(1, 0.0), *others) == [True] + [False] * 4
    assert accepts(ConstantParameter((1, 0.0)), (1, 0.0), *others) == [True, *[False] * 3, True]


class Items(tuple):
    __slots__ = ()


def test_tuples():
    pair = IntParameter(32), FloatParameter()
    values = [(1, 2.0), (1, 2), (1,), (1, 2.0, 3), (), [1, 2.0], Pair(1, 2.0), Items((1, 2.0)), 1]
    assert accepts(TupleParameter(tuple, pair), *values) == [True] + [False] * 8
    named = TupleParameter(Pair, pair)
    assert accepts(named, Pair(1, 2.0), Pair(1, 2), (1, 2.0)) == [True, False, False]
    nested = TupleParameter(tuple, (TupleParameter(Pair, pair), ConstantParameter((1, None))))
    values = [(Pair(3, 0.5), (1, None)), (Pair(3, 0.5), (2, None)), (Pair(2**31, 0.5), (1, None))]
    assert accepts(nested, *values, (3, 0.5)) == [True, False, False, False]


def test_a_comparison_that_raises_is_left_to_the_slow_path():
    class Moody:
        def __eq__(self, other):
            raise ZeroDivisionError

        __hash__ = None

    constant = Moody()
    assert accepts(ConstantParameter(constant), constant, Moody()) == [True, False]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("fp32", np.float32), ("fp64", np.float64), ("fp16", np.float16), ("i1", np.bool_)),
        *(("i8", np.int8), ("u16", np.uint16), ("i64", np.int64), ("i64", np.longlong)),
        *(("bf16", ml_dtypes.bfloat16), ("fp8e5", ml_dtypes.float8_e5m2)),
    ],
)
def test_arrays_of_every_kind_of_dtype(name, dtype):
    other = np.zeros(4, np.complex64)
    assert accepts(ArrayParameter(name), np.zeros(4, dtype), other) == [True, False]


def test_arrays():
    class MyArray(np.ndarray):
        pass

    array = aligned((4, 4), np.float32)
    read_only = array[:]
    read_only.flags.writeable = False
    misaligned = aligned(4, np.float32, offset_bytes=2)
    swapped = array.astype(">f4")
    others = [array.view(MyArray), array.tolist(), None, 5, np.float32(1), swapped, misaligned]
    assert accepts(ArrayParameter("fp32"), array, array.T, read_only) == [True, True, False]
    assert accepts(ArrayParameter("fp32", written=False), read_only) == [True]
    assert accepts(ArrayParameter("fp32"), *others) == [False] * len(others)


def test_arrays_by_the_alignment_of_their_address():
    at_16, at_4 = aligned(4, np.float32), aligned(4, np.float32, offset_bytes=4)
    assert accepts(ArrayParameter("fp32", divisible_by_16=True), at_16, at_4) == [True, False]
    assert accepts(ArrayParameter("fp32", divisible_by_16=False), at_16, at_4) == [False, True]


def test_an_unknown_layout_of_arrays_is_refused(monkeypatch):
    shared = launcher_module._shared()
    with monkeypatch.context() as patch:
        patch.setattr(launcher_module, "_numpy_layout_is_known", lambda: False)
        shared.fill()
        assert accepts(ArrayParameter("fp32"), np.zeros(4, np.float32)) == [False]
    shared.fill()
    assert accepts(ArrayParameter("fp32"), np.zeros(4, np.float32)) == [True]


def test_the_number_of_arguments_and_the_grid():
    launch = make([IntParameter(32)])
    assert launch(1, 1, 1, 5) is None
    assert launch(0, 1, 1, 5) is None
    wrong = [(), (1, 1, 1), (1, 1, 1, 5, 5), (1, 1, -1, 5), (2**31, 1, 1, 5), (1.0, 1, 1, 5)]
    assert [launch(*arguments) for arguments in wrong] == [NotImplemented] * len(wrong)


# ---- packing


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (IntParameter(32), -2, struct.pack("<q", -2)),
        (IntParameter(64, signed=False), 2**64 - 1, b"\xff" * 8),
        (FloatParameter(32), 0.1, struct.pack("<fi", 0.1, 0)),
        (FloatParameter(64), 0.1, struct.pack("<d", 0.1)),
        (BoolParameter(), True, struct.pack("<q", 1)),
        (BoolParameter(), False, struct.pack("<q", 0)),
        (AddressParameter(), 2**40 + 1, struct.pack("<q", 2**40 + 1)),
    ],
)
def test_slots(parameter, value, expected):
    assert packed(parameter, value) == expected


def test_constants_have_no_slot():
    parameters = [ArrayParameter("i64"), ConstantParameter((1, 2)), IntParameter(32)]
    launch = make(
        [*parameters, ConstantParameter(None), IntParameter(32)], "copy", COPY.format(bytes=16)
    )
    slots = np.zeros(2, np.int64)
    assert launch(1, 1, 1, slots, (1, 2), 7, None, 8) is None
    assert slots.tolist() == [7, 8]


def test_the_items_of_tuples_have_slots_in_order():
    inner = TupleParameter(tuple, (IntParameter(32), ConstantParameter(None), IntParameter(32)))
    outer = TupleParameter(Pair, (inner, IntParameter(64)))
    parameters = [ArrayParameter("i64"), IntParameter(32), outer, outer, IntParameter(32)]
    launch = make(parameters, "copy", COPY.format(bytes=64))
    slots = np.zeros(8, np.int64)
    assert launch(1, 1, 1, slots, 0, Pair((1, None, 2), 3), Pair((4, None, 5), 6), 7) is None
    assert slots.tolist() == list(range(8))


def test_the_grid_and_scratch_reach_the_kernel():
    visits = np.zeros(6, np.int64)
    assert make([ArrayParameter("i64")], "visit")(3, 2, 1, visits) is None
    assert visits.tolist() == [1] * 6
    scratch = make([ArrayParameter("i64"), IntParameter(32)], "fill_scratch", scratch_bytes=10_000)
    assert scratch(6, 1, 1, visits, 10_000) is None


# ---- errors


def test_the_error_of_a_kernel_is_raised():
    launch = make([ArrayParameter("i64"), IntParameter(32)], "fail")
    count = np.zeros(1, np.int64)
    with pytest.raises(AssertionOfKernelError, match="7"):
        launch(100, 1, 1, count, 3)
    assert launch(100, 1, 1, count, 1000) is None


def test_errors_of_the_launch_itself():
    with pytest.raises(MemoryError, match="scratch"):
        make([], scratch_bytes=2**62)(1, 1, 1)
    big = 2**31 - 1
    with pytest.raises(LaunchError, match=r"2\*\*63"):
        make([])(big, big, big)


def test_the_slow_path_raises_the_same_errors():
    loaded = load_kernels()
    count = np.zeros(1, np.int64)
    arguments = struct.pack("<qq", count.ctypes.data, 3)
    with pytest.raises(AssertionOfKernelError, match="7"):
        run_packed(loaded.address("fail"), arguments, (100, 1, 1), on_error=fail)


# ---- references and lifetime


def test_references_are_counted():
    parameters = [
        *(ArrayParameter("fp32"), IntParameter(64), FloatParameter(), BoolParameter()),
        *(ConstantParameter((1.5, "word", 10**20)), ConstantParameter(None)),
    ]
    launch = make(parameters)
    array, number, real = np.zeros(4, np.float32), 10**12, 2.5
    constant = (1.5, "WORD".lower(), int("1" + "0" * 20))
    good = (array, number, real, True, constant, None)
    bad = (array, number, real, True, constant, "")
    watched = [array, array.dtype, number, real, constant, *constant, launch]
    counts = [sys.getrefcount(thing) for thing in watched]
    none_before = sys.getrefcount(None)
    not_implemented_before = sys.getrefcount(NotImplemented)
    for _ in range(100_000):
        launch(1, 1, 1, *good)
        launch(1, 1, 1, *bad)
    assert [sys.getrefcount(thing) for thing in watched] == counts
    assert abs(sys.getrefcount(None) - none_before) < 100
    assert abs(sys.getrefcount(NotImplemented) - not_implemented_before) < 100


def test_a_launcher_keeps_its_code_and_lets_it_go():
    class Constant:
        pass

    constant = Constant()
    is_alive = weakref.ref(constant)
    launch = make([ConstantParameter(constant)])
    gc.collect()
    assert launch(1, 1, 1, constant) is None
    del constant
    gc.collect()
    assert is_alive() is not None
    del launch
    gc.collect()
    assert is_alive() is None


@pytest.mark.slow
def test_launchers_in_cycles_are_collected():
    for _ in range(20):
        cycle = []

        class Node:
            pass

        # The launcher reaches itself through its constant: only the collector can take it apart.
        node = Node()
        node.launch = make([ConstantParameter(node)])
        cycle.append(node)
        node.cycle = cycle
        is_alive = weakref.ref(node)
        del node, cycle
        gc.collect()
        assert is_alive() is None


def test_a_launcher_has_the_name_of_its_kernel():
    assert make([]).__name__ == "empty"


@pytest.mark.parametrize("tag", [None, 2**63 - 1])
def test_ints_with_and_without_the_shortcut_for_small_ones(tag):
    table = launcher_module._shared().table
    before = table[launcher_module.Table.ONE_DIGIT]
    if tag is not None:
        table[launcher_module.Table.ONE_DIGIT] = tag
    try:
        launch = make([ArrayParameter("i64"), IntParameter(64)], "copy", COPY.format(bytes=8))
        slot = np.zeros(1, np.int64)
        for power in (0, 1, 15, 29, 30, 31, 32, 59, 60, 61, 62, 63):
            for number in (2**power, 2**power - 1, -(2**power), -(2**power) - 1):
                fits = -(2**63) <= number < 2**63
                assert (launch(1, 1, 1, slot, number) is None) is fits
                assert not fits or slot[0] == number
    finally:
        table[launcher_module.Table.ONE_DIGIT] = before


def test_arrays_and_addresses_that_must_not_be_null(fake_torch):
    accept_torch()
    # Of the first it is not known that it has no elements; the second is a place in no memory.
    tensors = [FakeTensor(fake_torch.float32, address) for address in (0, 4095, 4096)]
    assert accepts(ArrayParameter("fp32"), *tensors) == [False, False, True]
    assert accepts(ArrayParameter("fp32", may_be_null=False), *tensors) == [False, False, True]
    assert accepts(AddressParameter(), 0, 1, 4095, 4096) == [True, False, False, True]
    assert accepts(AddressParameter(may_be_null=False), 0, 1, 2**62) == [False, False, True]


# ---- PyTorch


class FakeTensor(ctypes.Structure):
    """As much of a CPU tensor as launchers look at."""

    _fields_ = (("keys", ctypes.c_uint64),)

    def __init__(self, dtype, address, keys=ON_CPU):
        super().__init__(keys)
        self.dtype = dtype
        self.address = address

    def data_ptr(self):
        if self.address is None:
            raise RuntimeError("no storage")
        return self.address


@pytest.fixture
def fake_torch(monkeypatch):
    fake = types.ModuleType("torch")
    fake.Tensor = FakeTensor
    fake.nn = types.SimpleNamespace(Parameter=type("Parameter", (FakeTensor,), {}))
    fake.float32, fake.float64 = object(), object()
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(launcher_shared, "tensor_keys", lambda: FAKE_KEYS)
    launcher_module._shared()
    accept_torch()
    yield fake
    monkeypatch.undo()
    launcher_module._shared().fill()


def test_tensors(fake_torch):
    good = FakeTensor(fake_torch.float32, 4096)
    parameter = fake_torch.nn.Parameter(fake_torch.float32, 4096)
    subclass = type("Other", (FakeTensor,), {})(fake_torch.float32, 4096)
    others = [
        subclass,
        FakeTensor(fake_torch.float64, 4096),
        FakeTensor(fake_torch.float32, 4096, ON_GPU),
        FakeTensor(fake_torch.float32, 4096, ON_CPU | UNUSUAL),
        FakeTensor(fake_torch.float32, 4100),
        FakeTensor(fake_torch.float32, None),
    ]
    answers = accepts(ArrayParameter("fp32", divisible_by_16=True), good, parameter, *others)
    assert answers == [True, True] + [False] * 6


def test_tensors_whose_keys_are_not_known(fake_torch, monkeypatch):
    tensor = FakeTensor(fake_torch.float32, 4096)
    monkeypatch.setattr(launcher_shared, "tensor_keys", lambda: None)
    launcher_module._shared().fill()
    assert accepts(ArrayParameter("fp32"), tensor, np.zeros(1, np.float32)) == [False, True]


def test_the_address_of_a_tensor_is_packed(fake_torch):
    assert packed(ArrayParameter("fp32"), FakeTensor(fake_torch.float32, 4096)) == struct.pack(
        "<q", 4096
    )


def test_torch_may_be_imported_after_binding(fake_torch, monkeypatch):
    tensor = FakeTensor(fake_torch.float32, 4096)
    monkeypatch.delitem(sys.modules, "torch")
    launch = make([ArrayParameter("fp32")])
    launcher_module._shared().fill()
    accept_torch()
    assert launch(1, 1, 1, tensor) is NotImplemented
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    accept_torch()
    assert launch(1, 1, 1, tensor) is None
    assert launch(1, 1, 1, np.zeros(1, np.float32)) is None


def test_references_of_tensors_are_counted(fake_torch):
    launch = make([ArrayParameter("fp32")])
    address = 2**40
    tensor = FakeTensor(fake_torch.float32, address)
    failing = FakeTensor(fake_torch.float32, None)
    watched = [tensor, failing, address, fake_torch.float32]
    counts = [sys.getrefcount(thing) for thing in watched]
    for _ in range(20_000):
        launch(1, 1, 1, tensor)
        launch(1, 1, 1, failing)
    assert [sys.getrefcount(thing) for thing in watched] == counts

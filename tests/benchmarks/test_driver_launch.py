"""The loop in machine code that times the driver."""

import ctypes

import pytest

from benchmarks.driver_launch import repeated

PTX = ".visible .entry kernel(\n\t.param .u64 kernel_param_0,\n\t.param .u32 kernel_param_1\n)\n"
KIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)


def test_the_driver_is_called_as_often_as_asked_and_until_it_fails():
    calls = []

    @KIND
    def launch(function, *rest):
        places = ctypes.cast(rest[8], ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)))
        calls.append((function, rest[:7], [places[i][0] for i in range(2)]))
        return 700 if len(calls) == 8 else 0

    run = repeated(ctypes.cast(launch, ctypes.c_void_p).value, 1234, PTX)
    run(5)
    assert calls == [(1234, (1, 1, 1, 128, 1, 1, 0), [0, 0])] * 5
    with pytest.raises(RuntimeError, match="700"):
        run(5)
    assert len(calls) == 8

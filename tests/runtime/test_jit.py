"""Launching: grids, keywords, variants, options, hooks, the interpreter, errors, threads."""

import contextlib
import gc
import io
import threading
import weakref
from typing import NamedTuple

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright import CompileError, LaunchError, MockTensor, jit


class Array(np.ndarray):
    """An array that the fast path does not know."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


@jit
def add(x_ptr, n, STEP: tl.constexpr = 1):
    i = tl.program_id(0)
    if i < n:
        tl.store(x_ptr + i, tl.load(x_ptr + i) + STEP)


@jit
def number_programs(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    place = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out_ptr + place, 100 * x + 10 * y + z)


def fresh(function):
    """The same kernel without what it remembers."""
    return jit(function.fn)


# Grids.


@pytest.mark.parametrize("grid", [4, (4,), [4], (4, 1, 1), (np.int64(4),), lambda meta: (4,)])
def test_grids(grid):
    x = np.zeros(4, np.float32)
    for _ in range(2):
        add[grid](x, 4)
    assert x.tolist() == [2, 2, 2, 2]


def test_grids_have_three_axes_with_x_fastest():
    out = np.zeros(24, np.int32)
    number_programs[2, 3, 4](out)
    expected = [100 * x + 10 * y + z for z in range(4) for y in range(3) for x in range(2)]
    assert out.tolist() == expected
    number_programs.debug[2, 3, 4](out)
    assert out.tolist() == expected


def test_a_computed_grid_sees_the_parameters():
    seen = {}

    def grid(meta):
        seen.update(meta)
        return (meta["n"],)

    x = np.zeros(4, np.float32)
    add[grid](x, n=4)
    assert seen["STEP"] == 1
    assert seen["x_ptr"] is x
    assert x.tolist() == [1, 1, 1, 1]


def test_an_empty_grid_runs_nothing():
    x = np.zeros(4, np.float32)
    for grid in ((0,), (4, 0), lambda meta: 0):
        add[grid](x, 4)
        add.debug[grid](x, 4)
    assert not x.any()


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((), "1 to 3 sizes"),
        ((1, 2, 3, 4), "1 to 3 sizes"),
        ((2.0,), r"2\.0, which is no int.*\n.*cdiv"),
        ("ab", "'ab', which is no int"),
        ((-1,), "out of range"),
        ((2**31,), "out of range"),
        ((1, [2]), "no int"),
        (lambda meta: None, "None, which is no int"),
    ],
)
def test_grids_that_are_none(grid, message):
    with pytest.raises(LaunchError, match=message):
        add[grid](np.zeros(4, np.float32), 4)


# Arguments and keywords.


def test_keywords_and_defaults():
    x = np.zeros(4, np.float32)
    add[(4,)](x_ptr=x, n=4)
    add[(4,)](x, 4, STEP=3)
    add[(4,)](x, 4, 5)
    add[(4,)](n=4, STEP=2, x_ptr=x)
    assert x.tolist() == [11] * 4


@pytest.mark.parametrize(
    ("args", "keywords", "message"),
    [
        ((), {}, "add is missing the arguments `x_ptr`, `n`"),
        (
            (1,),
            {},
            r":1: add is missing the argument `n`\n(.*\n)*.*try: add\[grid\]\(x_ptr, n",
        ),
        ((1, 2, 3, 4), {}, "add takes 3 arguments, but 4 were given by position"),
        ((1, 2), {"num_warp": 3}, "`num_warp` is neither a parameter(.|\n)*`num_warps`"),
        ((1, 2), {"STEPS": 3}, "`STEPS` is neither a parameter(.|\n)*`STEP`"),
        ((1, 2), {"num_warps": "4"}, "`num_warps` is an int of at least 1"),
        ((1, 2), {"num_warps": 0}, "`num_warps` is an int of at least 1.*\n.*def add"),
        (
            (1, 2),
            {"num_warps": 3},
            r"`num_warps` is a power of two, not 3(.|\n)*num_warps=2 or",
        ),
        ((1, 2), {"num_stages": -1}, "`num_stages` is an int of at least 0"),
        ((1, 2), {"extern_libs": "a.bc"}, "`extern_libs` is a dict of names and paths"),
        ((1, 2), {"ptx_options": "-O1 'a"}, "`ptx_options` is a text as on the assembler's"),
        (
            (1, 2),
            {"default_dot_input_precision": "fp32"},
            "`default_dot_input_precision` cannot be 'fp32'(.|\n)*'tf32', .*'ieee'",
        ),
    ],
)
def test_calls_that_do_not_match(args, keywords, message):
    for launch in (add[(1,)], add.debug[(1,)], add[lambda meta: 1], add.warmup):
        with pytest.raises(LaunchError, match=message):
            launch(*args, **keywords)


def test_an_argument_given_twice():
    with pytest.raises(LaunchError, match="`n` is given twice, by position and by name"):
        add[(1,)](np.zeros(1), 1, n=2)


def test_parameters_of_every_kind():
    @jit
    def kernel(out_ptr, /, a, *rest, scale, OFFSET: tl.constexpr = 100):
        tl.store(out_ptr, (a + rest[0] + rest[1]) * scale + OFFSET)

    out = np.zeros(1, np.int32)
    kernel[(1,)](out, 2, 3, 4, scale=5)
    assert out[0] == 145
    kernel.debug[(1,)](out, 2, 3, 4, scale=6, OFFSET=0)
    assert out[0] == 54


def test_names_that_the_launch_function_could_use_itself():
    @jit
    def kernel(_options, _state, __launcher, kernel, NotImplemented):
        tl.store(_options, _state + __launcher + kernel + NotImplemented)

    out = np.zeros(1, np.int32)
    kernel[(1,)](out, 2, 3, 4, 5)
    kernel[lambda meta: 1](out, 2, 3, 4, NotImplemented=6)
    assert out[0] == 15


def test_tuples():
    class Pair(NamedTuple):
        pointer: np.ndarray
        value: int

    @jit
    def kernel(pair, sizes):
        tl.store(pair.pointer + sizes[1], pair.value * sizes[0])

    for _ in range(2):
        out = np.zeros(4, np.int32)
        compiled = kernel[(1,)](Pair(out, 7), (2, 3))
        assert out.tolist() == [0, 0, 0, 14]
    assert compiled.code.launcher(1, 1, 1, Pair(out, 8), (2, 3)) is None
    assert out.tolist() == [0, 0, 0, 16]
    assert compiled.code.launcher(1, 1, 1, Pair(out, 7), (1, 3)) is NotImplemented
    kernel.debug[(1,)](Pair(out, 7), (3, 3))
    assert out.tolist() == [0, 0, 0, 21]


def test_types_of_scalars():
    @jit
    def kernel(out_ptr, value):
        tl.store(out_ptr, value)

    out = np.zeros(1, np.float64)
    for value in (1, 5, 2**31 - 1, -(2**31), 2**52, True, 0.5, np.int8(-3), np.float32(0.25)):
        kernel[(1,)](out, value)
        assert out[0] == value
    kernel[(1,)](out, 0.1)
    assert out[0] == np.float32(0.1)


def test_half_precision_parameters():
    @jit
    def kernel(out_ptr, a: tl.float16, b: tl.bfloat16, c: tl.float64):
        tl.store(out_ptr, a)
        tl.store(out_ptr + 1, b)
        tl.store(out_ptr + 2, c)

    out = np.zeros(3, np.float64)
    kernel[(1,)](out, 0.1, 0.5, 0.1)
    assert out.tolist() == [float(np.float16(0.1)), 0.5, 0.1]


def test_addresses():
    @jit
    def annotated(x_ptr: "*fp32", n):  # noqa: F722 - the name of a type
        tl.store(x_ptr + n, 3.0)

    x = np.zeros(4, np.float32)
    annotated[(1,)](x.ctypes.data, 2)
    annotated[(1,)](x, 3)
    annotated.debug[(1,)](x.ctypes.data, 0)
    assert x.tolist() == [3, 0, 3, 3]


def test_an_address_without_annotation_says_both_ways_out():
    x = np.zeros(4, np.float32)
    with pytest.raises(CompileError) as caught:
        fresh(add)[(4,)](x.ctypes.data, 4)
    text = str(caught.value)
    assert "tl.load(x_ptr + i)" in text
    assert "pass the array itself" in text
    assert '`x_ptr: "*fp32"`' in text


def test_read_only_arrays():
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    for launch in (add[(4,)], add.debug[(4,)]):
        with pytest.raises(LaunchError, match="read-only"):
            launch(frozen, 4)

    @jit
    def copy(x_ptr, out_ptr):
        tl.store(out_ptr, tl.load(x_ptr))

    out = np.ones(1, np.float32)
    copy[(1,)](frozen, out)
    assert out[0] == 0


def test_tensors():
    torch = pytest.importorskip("torch")
    x = torch.zeros(4)
    kernel = fresh(add)
    for _ in range(3):
        kernel[(4,)](x, 4)
    assert x.tolist() == [3] * 4
    half = torch.zeros(4, dtype=torch.bfloat16)
    kernel[(4,)](half, 4)
    assert half.tolist() == [1] * 4


# Variants, options, introspection.


def test_variants_are_chosen_by_value():
    kernel = fresh(add)
    x = np.zeros(64, np.float32)
    kernels = {n: kernel[(n,)](x, n) for n in (1, 2, 3, 16, 32)}
    assert kernels[2] is kernels[3]
    assert kernels[16] is kernels[32]
    assert len({id(k) for k in kernels.values()}) == 3
    for n, known in kernels.items():
        assert kernel[(n,)](x, n) is known
    assert x[0] == 10
    assert x[31] == 2


def test_options_never_change_the_code():
    kernel = fresh(add)
    x = np.zeros(4, np.float32)
    first = kernel[(4,)](x, 4)
    options = {"num_warps": 8, "num_stages": 2, "maxnreg": 64, "waves_per_eu": 2, "kpack": 2}
    for _ in range(2):
        second = kernel[(4,)](x, 4, matrix_instr_nonkdim=16, enable_fp_fusion=False, **options)
    assert x.tolist() == [3] * 4
    assert second.metadata.num_warps == 8
    assert first.metadata.num_warps == 4
    assert second.code is first.code


def test_stages_of_a_compiled_kernel():
    kernel = add.warmup(tl.float32, 16, grid=(1,))
    assert set(kernel.asm) == {"source", "tir", "ttir", "llir", "optimized", "asm", "object"}
    assert "func @add" in kernel.asm["tir"]
    assert "define void @kernel_add" in kernel.asm["llir"]
    assert "define void @kernel_add" in kernel.asm["optimized"]
    assert "kernel_add:" in kernel.asm["asm"]
    assert isinstance(kernel.asm["object"], bytes)
    assert kernel.name == "add"
    assert kernel.metadata.hash == kernel.hash
    assert "func @add" in kernel.asm["source"]
    assert kernel.asm["ttir"] == kernel.asm["tir"]
    with pytest.raises(KeyError, match="tile IR has no layouts"):
        kernel.asm["ttgir"]
    with pytest.raises(KeyError, match="the stages are source, tir, llir"):
        kernel.asm["ptx"]


def test_a_compiled_kernel_is_launched_itself():
    x = np.zeros(4, np.float32)
    compiled = add.warmup(x, 4, grid=(4,))
    compiled[(4,)](x, 4, 1)
    compiled[4](x.view(Array), 3, 1)
    assert x.tolist() == [2, 2, 2, 1]
    with pytest.raises(LaunchError, match=r"`STEP` is =2, but .* compiled for =1"):
        compiled[(4,)](x, 4, 2)
    with pytest.raises(LaunchError, match=r"`x_ptr` is \*i32:16, but .* \*fp32:16"):
        compiled[(4,)](x.view(np.int32), 4, 1)
    with pytest.raises(LaunchError, match="takes 3 arguments, not 2"):
        compiled[(4,)](x, 4)


def test_warmup_compiles_what_the_launch_needs():
    kernel = fresh(add)
    ready = kernel.warmup(tl.float32, 16, grid=(1,))
    assert kernel.warmup(np.dtype(np.float32), 16) is ready
    assert kernel.warmup(np.float32, 16) is ready
    assert kernel.warmup(MockTensor(tl.float32), 16) is ready
    x = np.zeros(16, np.float32)
    assert x.ctypes.data % 16 == 0
    assert kernel[(16,)](x, 16) is ready
    assert kernel.run(x, 16, grid=(16,), warmup=True) is kernel.run(x, 16, grid=(16,))


def test_a_mock_tensor_cannot_be_launched():
    for launch in (add[(1,)], add.debug[(1,)]):
        with pytest.raises(LaunchError, match="`x_ptr` is a MockTensor"):
            launch(MockTensor(tl.float32), 4)


def test_hooks_see_every_launch():
    kernel = fresh(add)
    x = np.zeros(4, np.float32)
    calls = []
    kernel[(4,)](x, 4)
    kernel.add_pre_run_hook(lambda *args, **kwargs: calls.append((args[1:], kwargs)))
    kernel[(4,)](x, 4)
    kernel[(4,)](x, 3, num_warps=2)
    assert calls == [((4, 1), {}), ((3, 1), {"num_warps": 2})]


def test_assertions_only_in_debug_mode(monkeypatch):
    def kernel(x_ptr, n):
        tl.device_assert(n < 5, "n is too large")
        tl.store(x_ptr, n)

    x = np.zeros(1, np.int32)
    jit(kernel)[(1,)](x, 7)
    assert x[0] == 7
    for launch in (jit(kernel, debug=True)[(1,)], jit(kernel).debug[(1,)]):
        with pytest.raises(LaunchError, match=r"(?s)n is too large.*device_assert\(n < 5"):
            launch(x, 8)
        launch(x, 4)
    with pytest.raises(LaunchError, match="n is too large"):
        jit(kernel)[(1,)](x, 9, debug=True)
    monkeypatch.setenv("TILEWRIGHT_DEVICE_DEBUG", "1")
    assert jit(kernel).debug
    with pytest.raises(LaunchError, match="n is too large"):
        jit(kernel)[(1,)](x, 9)
    assert x[0] == 4


def test_interpreting_runs_python(monkeypatch):
    def kernel(x_ptr):
        print("here")
        tl.store(x_ptr, 5)

    x = np.zeros(1, np.int32)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        jit(kernel).debug[(2,)](x)
    assert output.getvalue().count("here") == 2
    monkeypatch.setenv("TILEWRIGHT_INTERPRET", "1")
    interpreted = jit(kernel)
    with contextlib.redirect_stdout(output):
        assert interpreted[(1,)](x) is None
    assert interpreted.warmup(x) is None
    assert output.getvalue().count("here") == 3


def test_interpreting_finds_accesses_out_of_bounds():
    x = np.zeros(4, np.float32)
    with pytest.raises(LaunchError, match="out-of-bounds read of 4 bytes at byte 16 of `x_ptr`"):
        add.debug[(5,)](x, 5)
    # A view may be left, the memory it lies in may not.
    add.debug[(4,)](x[:2], 4)
    assert x.tolist() == [2, 2, 2, 2]


def test_debug_levels_tell(monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "3")
    kernel = fresh(add)
    kernel[(1,)](np.zeros(1, np.float32), 7)
    told = capfd.readouterr().err
    assert "[tilewright] add[(1, 1, 1)]" in told
    assert "machine code" in told
    assert "func @add" in told


def test_times_of_kernels_from_disk(monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "2")
    for stage in ("machine code", "from disk"):
        fresh(add)[(1,)](np.zeros(1, np.float32), 7)
        told = capfd.readouterr().err
        assert f"[tilewright] add: {stage} " in told
        assert all(line.startswith("[tilewright] ") for line in told.splitlines())


@pytest.mark.parametrize("way", ["environment", "launcher"])
def test_debug_levels_tell_of_interpreted_launches(monkeypatch, capfd, way):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    if way == "environment":
        monkeypatch.setenv("TILEWRIGHT_INTERPRET", "1")
    kernel = fresh(add)
    launcher = kernel if way == "environment" else kernel.debug
    launcher[(1,)](np.zeros(1, np.float32), 7)
    assert capfd.readouterr().err == "[tilewright] add[(1, 1, 1)]: as Python\n"


def test_a_debug_level_that_is_no_number(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "yes")
    with pytest.raises(ValueError, match="TILEWRIGHT_DEBUG=yes: an integer is needed"):
        fresh(add)


def test_kernels_are_not_called():
    with pytest.raises(LaunchError, match=r"`add` is a kernel.*\n.*add\[grid\]"):
        add(1, 2)


def test_changed_globals_are_noticed():
    namespace = {"tl": tl, "SIZE": tl.constexpr(3)}
    source = "def kernel(out_ptr):\n    tl.store(out_ptr, SIZE)\n"
    exec(source, namespace)
    kernel = jit(source=source)(namespace["kernel"])
    out = np.zeros(1, np.int32)
    for _ in range(2):
        kernel[(1,)](out)
    assert out[0] == 3
    namespace["SIZE"] = tl.constexpr(4)
    with pytest.raises(CompileError, match="`SIZE` of `kernel` has changed"):
        kernel[(1,)](out)


def test_helpers_from_the_host():
    @tilewright.constexpr_function
    def double(n):
        return 2 * n

    @jit
    def kernel(out_ptr, N: tl.constexpr):
        tl.store(out_ptr, double(N) + tilewright.cdiv(N, 2) + tilewright.next_power_of_2(N))

    out = np.zeros(1, np.int32)
    kernel[(1,)](out, N=5)
    assert out[0] == 10 + 3 + 8
    assert double(tl.constexpr(4)) == 8
    assert tilewright.cdiv(-36, 5) == -7
    assert [tilewright.next_power_of_2(n) for n in (0, 1, 5, 8)] == [0, 1, 8, 8]


def test_functions_of_compile_time_ask_for_types():
    @tilewright.constexpr_function
    def element(x):
        assert isinstance(x, tl.tensor | tl.tensor_descriptor)
        return x.dtype if isinstance(x, tl.tensor_descriptor) else x.dtype.element_ty

    @jit
    def kernel(x_ptr, out_ptr, N: tl.constexpr):
        array = tl.make_tensor_descriptor(x_ptr, [N], [1], [N])
        of_pointer: tl.constexpr = element(x_ptr)
        of_descriptor: tl.constexpr = element(array)
        tl.store(out_ptr, of_pointer == tl.float16)
        tl.store(out_ptr + 1, of_descriptor == of_pointer)

    for dtype in (np.float16, np.float32):
        out = np.zeros(2, np.int32)
        kernel[(1,)](np.zeros(16, dtype), out, N=16)
        assert out.tolist() == [dtype is np.float16, 1]


def test_functions_of_compile_time_do_not_compute_on_tensors():
    @tilewright.constexpr_function
    def double(x):
        return x + x

    @jit
    def kernel(x_ptr):
        tl.store(x_ptr, double(tl.load(x_ptr)))

    with pytest.raises(tilewright.CompileError, match="`double` runs at compile time"):
        kernel.warmup(np.zeros(1, np.float32), grid=(1,))


# Threads and memory.


def test_many_threads_compile_and_launch():
    kernel = fresh(add)
    arrays = [np.zeros(64, np.float32) for _ in range(8)]
    errors = []

    def work(x):
        try:
            for step in range(1, 5):
                for n in (1, 3, 16, 64):
                    kernel[(n,)](x, n, STEP=step)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for x in arrays:
        assert x[[0, 1, 3, 16]].tolist() == [40, 30, 20, 10]


def test_launches_keep_no_array_alive():
    kernel = fresh(add)
    x = np.zeros(4, np.float32)
    kernel[(4,)](x, 4)
    kernel[(4,)](x.view(Array), 4)
    kernel[lambda meta: 4](x, 4)
    kernel.debug[(4,)](x, 4)
    kernel.warmup(x, 4)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_kernels_are_collected_as_garbage():
    # The collector takes a kernel, its launcher and its machine code apart in any order.
    for _ in range(5):
        kernel = fresh(add)
        x = np.zeros(4, np.float32)
        kernel[(4,)](x, 4)
        kernel.itself = kernel
        gone = weakref.ref(kernel)
        del kernel
        gc.collect()
        assert gone() is None


# What programs ask of a kernel.


def test_kernels_tell_what_they_are():
    kernel = fresh(add)
    assert list(kernel.signature.parameters) == kernel.arg_names == ["x_ptr", "n", "STEP"]
    assert kernel.constexprs == [2]
    assert kernel.hash == kernel.cache_key
    kernel.add_pre_run_hook(print)
    assert kernel.pre_run_hooks == (print,)
    assert not kernel.device_caches
    compiled = [kernel.warmup(tl.float32, 16, STEP=step, grid=None) for step in (1, 2)]
    assert list(kernel.device_caches[0][0].values()) == compiled


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("ptx_version", 87, "leave it out"),
        ("arch", "sm80", "tilewright.compiler.compile"),
        ("instrumentation_mode", "consan", "races=True"),
    ],
)
def test_options_that_cannot_take_effect(option, value, hint):
    x = np.zeros(4, np.float32)
    with pytest.raises(LaunchError, match=f"`{option}` has no effect") as caught:
        add[(4,)](x, 4, **{option: value})
    assert hint in caught.value.hint
    add[(4,)](x, 4, **{option: None})
    assert x.tolist() == [1] * 4

"""Hooks around launches and compiling: when they are called, and what they are told."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime import gpu_kernels
from tilewright import LaunchError, jit
from tilewright.codegen.nvidia.assembler import Assembled
from tilewright.runtime import build, gpu_build
from tilewright.runtime.hooks import HookChain, hooks
from tilewright.tools.tensor_descriptor import TensorDescriptor


def told_of_launches(grid, metadata, arguments):
    return {"programs": grid, "warps": metadata.num_warps, "n": arguments["n"]}


def make_add():
    @jit(launch_metadata=told_of_launches)
    def add(x_ptr, n, STEP: tl.constexpr):
        i = tl.program_id(0)
        if i < n:
            tl.store(x_ptr + i, tl.load(x_ptr + i) + STEP)

    return add


@pytest.fixture
def calls():
    """What the hooks around launches are told; taken off again behind the test."""
    seen = []
    enter, leave = (lambda facts: seen.append(("enter", facts.get()))), seen.append
    hooks.launch_enter_hook.add(enter)
    hooks.launch_exit_hook.add(leave)
    yield seen
    hooks.launch_enter_hook.remove(enter)
    hooks.launch_exit_hook.remove(leave)


@pytest.fixture
def compiles(monkeypatch):
    """What the hooks around compiling are told."""
    seen = []
    monkeypatch.setattr(hooks, "jit_cache_hook", lambda **told: seen.append(("before", told)))
    monkeypatch.setattr(hooks, "jit_post_compile_hook", lambda **t: seen.append(("after", t)))
    return seen


def test_chains():
    seen = []
    for chain in (HookChain(), HookChain(reversed=True)):
        first, second = (lambda x: seen.append((1, x))), (lambda x: seen.append((2, x)))
        assert not chain
        chain.add(first)
        chain.add(second)
        chain.add(first)
        chain("x")
        chain.remove(second)
        chain.remove(second)
        chain("y")
        assert chain.calls == [first]
    assert seen == [(1, "x"), (2, "x"), (1, "y"), (2, "x"), (1, "x"), (1, "y")]


def test_every_launch_comes_past_them(calls):
    add, x = make_add(), np.zeros(4, np.float32)
    for _ in range(3):
        compiled = add[(4,)](x, 4, STEP=1, num_warps=2)
    compiled[(4,)](x, 4, 1)
    assert x.tolist() == [4] * 4
    assert [call[0] for call in calls[::2]] == ["enter"] * 4
    for (_, told), facts in zip(calls[::2], calls[1::2], strict=True):
        assert facts.get() == told
        assert {"name": "add", "stream": 0, "programs": (4, 1, 1), "warps": 2, "n": 4}.items() <= (
            told.items()
        )
        assert told["function"]


def test_kernels_launched_before_come_past_them_too():
    add, x, seen = make_add(), np.zeros(4, np.float32), []
    for _ in range(2):
        add[(4,)](x, 4, STEP=1)
    assert add.recent
    hooks.launch_enter_hook.add(seen.append)
    try:
        add[(4,)](x, 4, STEP=1)
    finally:
        hooks.launch_enter_hook.remove(seen.append)
    add[(4,)](x, 4, STEP=1)
    assert len(seen) == 1
    assert x.tolist() == [4] * 4


def test_what_is_put_off_is_not_computed():
    described = []

    @jit(launch_metadata=lambda *facts: described.append(facts) or {})
    def clear(x_ptr):
        tl.store(x_ptr, 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hooks.launch_exit_hook, "calls", (lambda facts: facts.data,))
        clear[(1,)](np.ones(1, np.float32))
    assert not described


def test_an_emulated_gpu(calls, compiles):
    add, x = make_add(), np.zeros(4, np.float32)
    with tw.emulate("sm_80"):
        add[(4,)](x, 4, STEP=1)
        add[(4,)](x, 4, STEP=1)
    assert x.tolist() == [2] * 4
    assert [kind for kind, _ in compiles] == ["before", "after"]
    assert len(calls) == 4
    assert calls[0][1]["name"] == "add"


def test_a_gpu(calls, compiles, arrays):
    add = gpu_kernels.make_add()
    add[(1,)](*arrays, 128)
    compiled = add[(1,)](*arrays, 128)
    told = calls[0][1]
    assert told["function"] == compiled.code.function.address
    assert len(calls) == 4
    assert [kind for kind, _ in compiles] == ["before", "after"]


def test_what_is_told_around_compiling(compiles):
    add, x = make_add(), np.zeros(4, np.float32)
    add.warmup(x, 4, STEP=1, grid=None, num_warps=8)
    add[(4,)](x, 4, STEP=1, num_warps=8)
    add[(4,)](x, 4, STEP=2)
    assert [kind for kind, _ in compiles] == ["before", "after"] * 2
    told = compiles[0][1]
    assert set(told) == {
        *("key", "repr", "fn", "compile", "is_manual_warmup", "already_compiled"),
    }
    assert (told["fn"].jit_function, told["fn"].module) == (add, __name__)
    assert (told["is_manual_warmup"], compiles[2][1]["is_manual_warmup"]) == (True, False)
    facts = told["compile"]
    assert facts["signature"] == {"x_ptr": "*fp32", "n": "i32", "STEP": "constexpr"}
    assert facts["constants"] == {(2,): 1}
    assert facts["configs"] == [{(0,): [["tt.divisibility", 16]]}]
    assert (facts["num_warps"], facts["num_stages"], facts["is_warmup"]) == (8, 3, True)
    assert told["key"] != compiles[2][1]["key"]
    assert "num_warps=8" in told["repr"]
    assert "x_ptr: *fp32, n: i32" in told["repr"]


def test_a_launch_is_left_out(monkeypatch):
    add, x = make_add(), np.zeros(4, np.float32)
    monkeypatch.setattr(hooks, "jit_cache_hook", lambda **told: True)
    assert add[(4,)](x, 4, STEP=1) is None
    assert add.warmup(x, 4, STEP=1, grid=None) is None
    with tw.emulate("sm_80"):
        assert add[(4,)](x, 4, STEP=1) is None
    tuned = tw.autotune([tw.Config({"STEP": step}) for step in (1, 2)], key=[])(add)
    with pytest.raises(LaunchError, match="`jit_cache_hook` refuses"):
        tuned[(4,)](x, 4)
    assert not x.any()
    monkeypatch.setattr(hooks, "jit_cache_hook", None)
    add[(4,)](x, 4, STEP=1)
    assert x.tolist() == [1] * 4


@jit
def takes_all(x_ptr, d, pair, n, flag, scale, NAME: tl.constexpr, KIND: tl.constexpr):
    tl.static_assert(NAME == "a")
    tile = d.load([0, 0]).to(KIND)
    tl.store(x_ptr, tl.sum(tile.reshape(64)).to(tl.float32) * scale + pair[0] + pair[1] + n)


def test_preloading(compiles):
    x, matrix = np.zeros(1, np.float32), np.ones((8, 8), np.float16)
    arguments = x, TensorDescriptor(matrix, [8, 8], [8, 1], [8, 8]), (3, 1), 2**40, True, 0.5
    launch = takes_all[(1,)]
    launch(*arguments, "a", tl.float32, num_warps=2)
    text = compiles[-1][1]["compile"]["specialization_data"]
    fresh = jit(takes_all.fn)
    compiled = fresh.preload(text)
    assert fresh[(1,)](*arguments, "a", tl.float32, num_warps=2) is compiled
    assert compiled.code.launcher is not None
    assert len(compiles) == 2
    with pytest.raises(LaunchError, match=r"compiled for the kernel `.*takes_all`"):
        make_add().preload(text)


def test_preloading_on_a_gpu(compiles, arrays):
    gpu_kernels.make_add()[(1,)](*arrays, 128)
    fresh = gpu_kernels.make_add()
    compiled = fresh.preload(compiles[-1][1]["compile"]["specialization_data"])
    assert fresh[(1,)](*arrays, 128) is compiled


def test_functions_have_no_text(compiles):
    @jit
    def one():
        return 1.0

    @jit
    def store(x_ptr, f: tl.constexpr):
        tl.store(x_ptr, f())

    store[(1,)](np.zeros(1, np.float32), one)
    assert compiles[-1][1]["compile"]["specialization_data"] is None


def test_the_loading_of_code_is_told_once():
    @tw.jit
    def kernel(x_ptr):
        tl.store(x_ptr, 1.0)

    told = []
    hooks.kernel_load_start_hook.add(lambda *facts: told.append(("start", *facts)))
    hooks.kernel_load_end_hook.add(lambda *facts: told.append(("end", *facts)))
    try:
        for _ in range(2):
            loaded = kernel[(1,)](np.zeros(1, np.float32))
    finally:
        hooks.kernel_load_start_hook.replace()
        hooks.kernel_load_end_hook.replace()
    files = loaded.metadata_group
    assert told == [
        ("start", None, None, "kernel", files, loaded.hash),
        ("end", loaded.module, loaded.function, "kernel", files, loaded.hash),
    ]


def test_what_the_listener_of_compiling_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    told = []
    monkeypatch.setattr(hooks, "compilation_listener", lambda **facts: told.append(facts))
    x = np.zeros(4, np.float32)
    make_add()[(4,)](x, 4, STEP=2.0)
    make_add()[(4,)](x, 4, STEP=2.0)
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    make_add()[(4,)](x, 4, STEP=2.0)
    assert [facts["cache_hit"] for facts in told] == [False, True, False]
    first, second, _ = told
    assert first["src"].signature["x_ptr"] == "*fp32"
    assert first["metadata"]["hash"] == second["metadata"]["hash"]
    assert list(first["metadata_group"]) == [path.name for path in tmp_path.iterdir()]
    times = first["times"]
    assert [name for name, _ in times.lowering_stages] == ["llir", "object"]
    assert times.total == times.ir_initialization + times.total_lowering + times.store_results
    assert times.ir_initialization > 0
    assert second["times"].lowering_stages == []


@pytest.fixture
def clock(monkeypatch):
    """`clock(module, name, seconds)`: time stands still but in that function."""
    now = [0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def takes(module, name, seconds):
        function = getattr(module, name)

        def called(*args, **kwargs):
            now[0] += seconds
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, called)

    return takes


@pytest.fixture
def compile_times(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    told = []
    monkeypatch.setattr(hooks, "compilation_listener", lambda **facts: told.append(facts["times"]))
    return told


SECOND = 1_000_000


@pytest.mark.parametrize("assembler", ["ptxas", "driver"])
def test_the_time_of_each_assembler_is_its_own(
    monkeypatch, compile_times, clock, arrays, assembler
):
    if assembler == "ptxas":
        made = Assembled("", 32, 0, 0, (), b"CUBIN:")
        monkeypatch.setattr(gpu_build, "assembled", lambda *_: made)
    for name, seconds in (
        *(("tile_ir", 1), ("generate", 2), ("assembled", 4), ("linked", 8), ("write_entry", 16)),
    ):
        clock(gpu_build, name, seconds)
    gpu_kernels.make_add().warmup(*arrays, 128, grid=None)
    (times,) = compile_times
    machine_code = 4 if assembler == "ptxas" else 12
    assert times.ir_initialization == SECOND
    assert times.lowering_stages == [("ptx", 2 * SECOND), ("cubin", machine_code * SECOND)]
    assert times.store_results == 16 * SECOND


def test_what_a_program_does_while_an_executor_compiles_is_no_time_of_compiling(
    monkeypatch, compile_times, clock
):
    for name, seconds in (("tile_ir", 1), ("generate", 2), ("write_entry", 4)):
        clock(build, name, seconds)
    clock(build, "compile_to_object", 0)
    meanwhile = SimpleNamespace(work=lambda: None)
    clock(meanwhile, "work", 100)
    with ThreadPoolExecutor(1) as pool:
        finish = make_add().begin_compile(pool, np.zeros(4, np.float32), 4, STEP=1)
        pool.submit(meanwhile.work).result()
        finish()
    (times,) = compile_times
    assert times.lowering_stages == [("llir", 2 * SECOND), ("object", 0)]
    assert (times.ir_initialization, times.store_results) == (SECOND, 4 * SECOND)


def test_what_the_listener_of_tuning_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    told = []
    monkeypatch.setattr(hooks, "autotuning_listener", lambda **facts: told.append(facts))
    times = iter([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])

    def tuned():
        configs = [tw.Config({"STEP": step}) for step in (1.0, 2.0)]
        decorate = tw.autotune(
            configs, key=["n"], do_bench=lambda _, quantiles: next(times), cache_results=True
        )
        return configs, decorate(make_add())

    x = np.zeros(4, np.float32)
    configs, kernel = tuned()
    kernel[(4,)](x, 4)
    kernel[(4,)](x, 4)
    tuned()[1][(4,)](x, 4)
    assert [facts["cache_hit"] for facts in told] == [False, True]
    first = told[0]
    assert (first["fn"], first["key"][0], first["best_config"]) == (kernel.base_fn, 4, configs[1])
    assert [first["configs_timings"][config][0] for config in configs] == [2, 1]
    assert first["duration"] > 0


def test_unloading():
    gc.collect()  # of other tests
    told = []
    hooks.kernel_unload_hook.add(lambda *facts: told.append(facts))
    try:
        kernel = make_add()
        compiled = kernel[(1,)](np.zeros(1, np.float32), 1, STEP=2.0)
        entry, name, key = compiled.code.entry, kernel.name, compiled.hash
        gc.collect()
        assert told == []
        del kernel, compiled
        gc.collect()
    finally:
        hooks.kernel_unload_hook.replace()
    assert [(facts[1], facts[2], facts[4]) for facts in told] == [(entry, name, key)]

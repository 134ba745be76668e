"""Autotuning: invisible in the results, its hooks, its choice, what it keeps, how it fails."""

import io
import re
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError, Config, LaunchError, Unsupported
from tilewright.runtime import build, trials
from tilewright.runtime import progress as progress_module


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


def bench(times):
    """A stand-in for do_bench: launches three times, and tells the times in turn."""
    left = list(times)

    def do_bench(launch, quantiles):
        for _ in range(3):
            launch()
        time = left.pop(0)
        return [time] * len(quantiles)

    do_bench.left = left
    return do_bench


def steps(*values, **settings):
    return [Config({"STEP": value}, **settings) for value in values]


def add(x_ptr, n, STEP: tl.constexpr):
    i = tl.program_id(0)
    if i < n:
        tl.store(x_ptr + i, tl.load(x_ptr + i) + STEP)


def tuned(configs, times, key=("n",), fn=add, **settings):
    return tw.autotune(configs, key=list(key), do_bench=bench(times), **settings)(tw.jit(fn))


def test_an_update_in_place_happens_once():
    kernel = tuned(steps(1, 2), [2.0, 1.0])
    x = np.zeros(4, np.float32)
    kernel[(4,)](x, 4)
    assert x.tolist() == [2] * 4
    assert kernel.best_config.kwargs == {"STEP": 2}
    kernel[(4,)](x, 4)
    assert x.tolist() == [4] * 4


def test_only_what_the_winner_writes_is_left():
    def half(x_ptr, UPPER: tl.constexpr):
        i = tl.program_id(0) + (4 if UPPER else 0)
        tl.store(x_ptr + i, 1.0)

    kernel = tuned([Config({"UPPER": u}) for u in (False, True)], [2.0, 1.0], (), half)
    x = np.zeros(8, np.float32)
    kernel[(4,)](x)
    assert x.tolist() == [0] * 4 + [1] * 4


def test_arrays_of_every_kind_are_restored():
    torch = pytest.importorskip("torch")
    whole = np.zeros(16, np.float32)
    for x in (whole[::2], torch.zeros(8), torch.nn.Parameter(torch.zeros(8)), bytearray(8)):
        kernel = tuned(steps(1, 2), [2.0, 1.0])
        kernel[(1,)](x, 1)
        assert list(x[:2]) == [2, 0]


def test_what_cannot_be_saved_is_refused():
    class Tensor:
        def __init__(self, array):
            self.array = array
            self.dtype = array.dtype

        def data_ptr(self):
            return self.array.ctypes.data

    with pytest.raises(LaunchError, match="cannot save the contents of `x_ptr`, a Tensor"):
        tuned(steps(1, 2), [2.0, 1.0])[(4,)](Tensor(np.zeros(4, np.float32)), 4)


def test_tuning_once_for_each_key_and_dtype():
    kernel = tuned(steps(1, 2), [2.0, 1.0, 1.0, 2.0, 2.0, 1.0])
    x, y = np.zeros(8, np.float32), np.zeros(8, np.int32)
    for _ in range(2):
        kernel[(4,)](x, 4)
        kernel[(5,)](x, 5)
        kernel[(4,)](y, n=4)
    assert x.tolist() == [6] * 4 + [2] + [0] * 3
    assert y.tolist() == [4] * 4 + [0] * 4
    assert len(kernel.cache) == 3
    assert kernel.do_bench.left == []


def test_configurations_that_are_the_same_here_are_timed_once():
    configs = [Config({"STEP": 1}, num_warps=w) for w in (1, 2, 4)] + steps(2)
    kernel = tuned(configs, [1.0, 2.0])
    kernel[(4,)](np.zeros(4, np.float32), 4)
    assert kernel.do_bench.left == []
    assert [times[0] for times in kernel.configs_timings.values()] == [1.0, 1.0, 1.0, 2.0]


def test_one_configuration_is_not_timed():
    kernel = tuned(steps(3), [])
    x = np.zeros(4, np.float32)
    kernel[(4,)](x, 4)
    assert x.tolist() == [3] * 4


def test_hooks():
    log = []
    configs = [Config({"STEP": 1}, pre_hook=lambda args: log.append(("config", args["STEP"])))]
    configs += steps(2)

    def before(args, reset_only=False):
        log.append(("before", reset_only))

    def after(args, exception):
        log.append(("after", exception))

    kernel = tuned(configs, [1.0, 2.0], pre_hook=before, post_hook=after)
    x = np.zeros(4, np.float32)
    kernel[(4,)](x, 4)
    trial = [("before", False), ("after", None)]
    assert log == [("config", 1), *trial] * 3 + trial * 3 + [("before", True), ("config", 1)]
    assert x.tolist() == [1] * 4


def test_reset_to_zero_holds_for_every_launch():
    kernel = tuned(steps(1, 2), [2.0, 1.0], reset_to_zero=["x_ptr"])
    x = np.full(4, 9, np.float32)
    for _ in range(2):
        kernel[(4,)](x, 4)
        assert x.tolist() == [2] * 4


def test_restore_value_between_trial_launches():
    seen = []

    def do_bench(launch, quantiles):
        launch()
        seen.append(x[0])
        return [1.0] * 3

    kernel = tw.autotune(steps(1, 2), ["n"], restore_value=["x_ptr"], do_bench=do_bench)(
        tw.jit(add)
    )
    x = np.zeros(4, np.float32)
    kernel[(4,)](x, 4)
    assert seen == [0, 0]
    assert x.tolist() == [1] * 4


def test_pruning():
    seen = {}

    def early(configs, named, **keywords):
        seen.update(named, keywords=keywords)
        return [c for c in configs if c.kwargs["STEP"] > 1]

    kernel = tuned(
        steps(1, 2, 3, 4, 5),
        [2.0, 1.0],
        prune_configs_by={
            "early_config_prune": early,
            "perf_model": lambda x_ptr, n, STEP, **options: -STEP,
            "top_k": 2,
        },
    )
    kernel[(4,)](np.zeros(4, np.float32), n=4)
    assert kernel.best_config.kwargs == {"STEP": 4}
    assert seen["n"] == 4
    assert seen["keywords"] == {"n": 4}
    kernel = tuned(steps(1, 2), [], prune_configs_by={"early_config_prune": lambda *a, **k: []})
    with pytest.raises(LaunchError, match="left no configuration"):
        kernel[(4,)](np.zeros(4, np.float32), 4)


def test_heuristics_nest_either_way():
    rules = {"STEP": lambda args: args["n"] * args["SCALE"]}

    def scaled(x_ptr, n, SCALE: tl.constexpr, STEP: tl.constexpr):
        tl.store(x_ptr, tl.load(x_ptr) + STEP)

    configs = [Config({"SCALE": s}) for s in (10, 100)]
    inner = tw.autotune(configs, ["n"], do_bench=bench([2.0, 1.0]))(
        tw.heuristics(rules)(tw.jit(scaled))
    )
    x = np.zeros(4, np.float32)
    inner[(1,)](x, 4)
    assert x[0] == 400
    assert isinstance(inner.base_fn, tw.JITFunction)
    outer = tw.heuristics({"n": lambda args: 3})(
        tw.autotune(configs, ["n"], do_bench=bench([2.0, 1.0]))(
            tw.heuristics(rules)(tw.jit(scaled))
        )
    )
    outer[(1,)](x)
    assert x[0] == 700
    assert outer.best_config.kwargs == {"SCALE": 100}


def test_the_grid_sees_the_configuration():
    kernel = tuned([Config({"STEP": s}) for s in (1, 2)], [1.0, 2.0])
    x = np.zeros(4, np.float32)
    kernel[lambda meta: (meta["n"] // meta["STEP"],)](x, 4)
    assert x.tolist() == [1] * 4


# Failures.


def failing(monkeypatch, error, values):
    compile_kernel = build.compile_kernel

    def fail(request):
        if request.specializations["STEP"].traced.value in values:
            raise error
        return compile_kernel(request)

    monkeypatch.setattr(build, "compile_kernel", fail)


def test_what_does_not_fit_is_skipped(monkeypatch):
    failing(monkeypatch, Unsupported("needs too much"), {1})
    kernel = tuned(steps(1, 2, 3), [2.0, 1.0])
    x = np.zeros(4, np.float32)
    kernel[(4,)](x, 4)
    assert x.tolist() == [3] * 4


def test_what_a_kernel_refuses_is_skipped():
    def add_even(x_ptr, n, STEP: tl.constexpr):
        tl.static_assert(STEP % 2 == 0, "only even steps")
        tl.store(x_ptr + tl.program_id(0), STEP)

    kernel = tw.autotune(steps(1, 2, 3), ["n"])(tw.jit(add_even))
    x = np.zeros(4, np.float32)
    kernel[(4,)](x, 4)
    assert x.tolist() == [2] * 4


def test_when_nothing_fits(monkeypatch):
    failing(monkeypatch, Unsupported("needs too much"), {1, 2})
    with pytest.raises(LaunchError, match=r"(?s)none of the conf.*STEP: 1.*needs.*STEP: 2.*needs"):
        tuned(steps(1, 2), [])[(4,)](np.zeros(4, np.float32), 4)


def test_other_errors_name_the_configuration(monkeypatch):
    failing(monkeypatch, CompileError("wrong"), {2})
    x = np.zeros(4, np.float32)
    with pytest.raises(CompileError, match="wrong") as caught:
        tuned(steps(1, 2), [1.0, 2.0])[(4,)](x, 4)
    assert "while tuning add with STEP: 2" in str(caught.value)


def test_the_only_configuration_is_named_where_it_does_not_compile():
    kernel = tuned(steps("one"), [])
    for launch in (kernel[(4,)], kernel.warmup):
        with pytest.raises(CompileError, match="with the configuration STEP: one"):
            launch(np.zeros(4, np.float32), 4)


def test_a_configuration_that_no_machine_has_is_a_mistake():
    """It is no matter of room, so it is not passed over: its author would never hear of it."""
    configs = [Config({"STEP": 1}), Config({"STEP": 2}, num_warps=3)]
    with pytest.raises(LaunchError, match="`num_warps` is a power of two") as caught:
        tuned(configs, [1.0, 2.0])[(4,)](np.zeros(4, np.float32), 4)
    assert "while tuning add with STEP: 2, num_warps: 3" in str(caught.value)


def test_an_error_during_the_trials_restores():
    def do_bench(launch, quantiles):
        launch()
        raise KeyboardInterrupt

    x = np.zeros(4, np.float32)
    kernel = tw.autotune(steps(1, 2), ["n"], do_bench=do_bench)(tw.jit(add))
    with pytest.raises(KeyboardInterrupt):
        kernel[(4,)](x, 4)
    assert not x.any()


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((4, 3), {}, "`STEP` is given in the call"),
        ((4,), {"STEP": 3}, "`STEP` is given in the call"),
        ((4,), {"num_warps": 8}, "`num_warps` is given in the call"),
        ((4,), {"n": 4}, "add: `n` is given twice"),
        ((4, 5, 6), {}, "add takes 3 arguments, but 4"),
    ],
)
def test_a_parameter_given_twice(arguments, keywords, message):
    kernel, x = tuned(steps(1, 2), [1.0, 2.0], reset_to_zero=["x_ptr"]), np.ones(4, np.float32)
    for _ in range(2):  # before it is tuned, and after
        for call in (kernel[(4,)], kernel.warmup):
            with pytest.raises(LaunchError, match=message):
                call(x, *arguments, **keywords)
        kernel[(4,)](np.zeros(4, np.float32), 4)
    assert x.all()


def test_a_parameter_of_the_default_given_in_the_call():
    kernel = tuned([Config({})], [], default=Config({"STEP": 2}))
    for _ in range(2):
        with pytest.raises(LaunchError, match="`STEP` is given in the call"):
            kernel[(4,)](np.zeros(4, np.float32), 4, STEP=3)


def test_a_missing_argument_is_found_before_anything_is_tried():
    asked = {"early_config_prune": lambda configs, arguments, **keywords: arguments["n"]}
    for kernel in (
        tuned(steps(1, 2), [], prune_configs_by=asked),
        tuned(steps(1, 2), [], default=lambda arguments: arguments["n"]),
        tw.autotune(steps(1), [])(tw.heuristics({})(tw.jit(add))),
        tw.autotune([Config({})], [], prune_configs_by=asked)(
            tw.heuristics({"STEP": lambda arguments: arguments["n"]})(tw.jit(add))
        ),
    ):
        for call in (kernel[(4,)], kernel.warmup, kernel.debug[(4,)]):
            with pytest.raises(LaunchError, match=r"missing the argument `n`\n") as caught:
                call(np.zeros(4, np.float32))
            assert caught.value.hint == "add[grid](x_ptr, n)"


def test_calling_without_a_grid():
    computed = tw.heuristics({"STEP": lambda arguments: 1})(tw.jit(add))
    for kernel in (tuned(steps(1, 2), []), computed):
        with pytest.raises(LaunchError, match=r"`add` is a kernel.*\n.*add\[grid\]"):
            kernel(np.zeros(4, np.float32), 4)


@pytest.mark.parametrize(
    ("arguments", "key", "message"),
    [
        (
            (),
            "n",
            "computes `STEP` asks for the argument `n`.*\n(.*\n)*.*add\\[grid\\]\\(x_ptr, n\\)",
        ),
        ((4,), "m", "computes `STEP` raises KeyError: 'm'\n.*`x_ptr`, `n`"),
        ((4, 1), "n", "`STEP` is given by position, and computed"),
    ],
)
def test_heuristics_that_do_not_fit_the_call(arguments, key, message):
    kernel = tw.heuristics({"STEP": lambda given: given[key]})(tw.jit(add))
    for call in (kernel[(4,)], kernel.warmup, kernel.debug[(4,)]):
        with pytest.raises(LaunchError, match=message):
            call(np.zeros(4, np.float32), *arguments)


def test_names_that_are_no_parameters():
    for settings in ({"key": ["m"]}, {"reset_to_zero": ["m"]}, {"restore_value": ["m"]}):
        with pytest.raises(LaunchError, match="`m` is no parameter of the kernel"):
            tuned(steps(1), [], **settings)


# Kept on disk.


def test_results_are_kept_for_each_configuration():
    x = np.zeros(4, np.float32)
    tuned(steps(1, 2), [2.0, 1.0], cache_results=True)[(4,)](x, 4)
    again = tuned(steps(3, 2, 1), [5.0], cache_results=True)
    again[(4,)](x, 4)
    assert again.best_config.kwargs == {"STEP": 2}
    assert again.do_bench.left == []
    elsewhere = tuned(steps(1, 2), [1.0, 2.0], cache_results=True)
    elsewhere[(4,)](np.zeros(4, np.int32), 4)
    assert elsewhere.do_bench.left == []
    assert elsewhere.best_config.kwargs == {"STEP": 1}


# Not tuned until it is asked for.


def test_the_default_until_tuning_is_asked_for(monkeypatch):
    x = np.zeros(4, np.float32)
    kernel = tuned(steps(1, 2), [2.0, 1.0], default=Config({"STEP": 3}))
    kernel[(4,)](x, 4)
    assert (x.tolist(), kernel.do_bench.left) == ([3] * 4, [2.0, 1.0])
    with tw.tuning():
        kernel[(4,)](x, 4)
    assert kernel.best_config.kwargs == {"STEP": 2}
    kernel[(4,)](x, 4)
    assert (x.tolist(), kernel.do_bench.left) == ([7] * 4, [])
    later = tuned(steps(1, 2), [], default=lambda arguments: Config({"STEP": arguments["n"]}))
    later[(4,)](x, 4)
    assert later.best_config.kwargs == {"STEP": 2}
    later[(4,)](np.zeros(4, np.int32), 4)
    assert later.best_config.kwargs == {"STEP": 4}
    monkeypatch.setenv("TILEWRIGHT_TUNE", "1")
    again = tuned(steps(1, 2), [1.0, 2.0], default=Config({"STEP": 3}), key=())
    again[(4,)](x, 4)
    assert again.best_config.kwargs == {"STEP": 1}


# Compiling side by side.


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_executors_compile(kind):
    settings = {"max_workers": 2}
    if kind is ProcessPoolExecutor:
        import multiprocessing

        settings["mp_context"] = multiprocessing.get_context("spawn")
    with kind(**settings) as executor:
        kernel = tuned(steps(1, 2, 3), [3.0, 2.0, 1.0], executor=executor)
        x = np.zeros(4, np.float32)
        kernel[(4,)](x, 4)
    assert x.tolist() == [3] * 4


# Interpreted, and shown.


def test_interpreted_kernels_are_not_tuned(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_INTERPRET", "1")
    x = np.zeros(4, np.float32)
    tuned(steps(1, 2), [])[(4,)](x, 4)
    assert x.tolist() == [1] * 4


def test_printing(monkeypatch, capsys):
    monkeypatch.setenv("TILEWRIGHT_PRINT_AUTOTUNING", "1")
    tuned(steps(1, 2), [2.0, 1.0])[(4,)](np.zeros(4, np.float32), 4)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("[tilewright] tuning add 2/2: STEP: 2")
    assert lines[1].endswith(": 1 ms")


def test_the_progress_line(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for seconds, shown in ((2.0, ""), (-1.0, "tuning add 1/2")):
        monkeypatch.setattr(progress_module, "_QUIET_SECONDS", seconds)
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        tuned(steps(1, 2), [2.0, 1.0])[(4,)](np.zeros(4, np.float32), 4)
        assert shown in terminal.getvalue()
        assert terminal.getvalue().count("\n") == bool(shown)
        assert bool(shown) == bool(terminal.getvalue())


def test_a_long_tuning_tells_what_it_found(monkeypatch, capfd):
    monkeypatch.setattr(progress_module, "_QUIET_SECONDS", -1.0)
    tuned(steps(1, 2), [2.0, 1.0])[(4,)](np.zeros(4, np.float32), 4)
    assert re.fullmatch(
        r"\[tilewright\] tuned add: 2 configurations in \d+\.\d s, "
        r"the fastest: STEP: 2, num_warps: 4, num_ctas: 1, num_stages: 3: 1 ms\n",
        capfd.readouterr().err,
    )


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (
            lambda: tw.autotune([{"STEP": 16}], key=[]),
            r"is a tilewright.Config, not .*\n.*`tilewright.Config\({'STEP': 16}\)`",
        ),
        (
            lambda: tw.autotune(steps(1), key=[])(add),
            r"@autotune stands above a kernel, and `add` is none\n.*`@tilewright.jit`",
        ),
        (lambda: tw.heuristics({})(add), "@heuristics stands above a kernel"),
        (
            lambda: tw.autotune([Config({"STEPS": 1})], key=[])(tw.jit(add)),
            r"`STEPS` is no parameter of the kernel \(STEPS: 1.*\n.*did you mean `STEP`\?",
        ),
        (
            lambda: tw.heuristics({"STEPS": len})(tw.jit(add)),
            r"heuristics of add: `STEPS` is neither a parameter .*\n.*did you mean `STEP`",
        ),
        (
            lambda: tw.jit(tw.autotune(steps(1), key=[])(tw.jit(add))),
            "`@autotune` has been applied .*\n.*`@tilewright.jit` stands below",
        ),
        (
            lambda: tw.jit(tw.heuristics({})(tw.jit(add))),
            "`@heuristics` has been applied .*\n.*`@tilewright.jit` stands below",
        ),
    ],
)
def test_decorators_that_do_not_fit(decorate, message):
    with pytest.raises(tw.TilewrightError, match=message):
        decorate()


def test_heuristics_compute_options_of_a_launch():
    rules = {"STEP": lambda given: given["n"], "num_warps": lambda given: 2 * given["STEP"]}
    x = np.zeros(4, np.float32)
    kernel = tw.heuristics(rules)(tw.jit(add))
    with tw.emulate("sm_80"):
        assert kernel[(4,)](x, 4).metadata.num_warps == 8
    assert x.tolist() == [4] * 4


def test_options_of_a_launch_are_no_unknown_parameters():
    assert tw.autotune([Config({"STEP": 1, "waves_per_eu": 2})], key=[])(tw.jit(add))


def test_debugging_takes_the_first_configuration(capfd):
    kernel = tuned(steps(3, 5), [], reset_to_zero=["x_ptr"])
    x = np.ones(4, np.float32)
    kernel.debug[(4,)](x, 4)
    assert x.tolist() == [3] * 4
    assert "add as Python, with the first configuration: STEP: 3" in capfd.readouterr().err
    assert not kernel.debug
    with pytest.raises(LaunchError, match="`STEP` is given in the call"):
        kernel.debug[(4,)](x, 4, STEP=1)


def test_debugging_computes_heuristics():
    kernel = tw.heuristics({"STEP": lambda arguments: arguments["n"]})(tw.jit(add))
    x = np.zeros(4, np.float32)
    kernel.debug[(4,)](x, 4)
    tw.autotune([Config({})], key=[])(kernel).debug[(4,)](x, 4)
    assert x.tolist() == [8] * 4


def test_configurations_compare_by_what_they_say():
    assert Config({"A": 1}) == Config({"A": 1})
    assert Config({"A": 1}) != Config({"A": 1}, num_warps=8)
    assert len({Config({"A": 1}), Config({"A": 1}), Config({"A": 2})}) == 2
    either, other = Config({"A": 1, "B": 2}), Config({"B": 2, "A": 1})
    assert len({either, other}) == 1
    assert str(Config({"A": 1})) == "A: 1, num_warps: 4, num_ctas: 1, num_stages: 3"
    assert trials.Trials.__doc__


def test_a_class_derived_from_the_tuner():
    """Packages derive theirs, with Triton's arguments, and put functions of their own in it."""
    calls = []

    class Mine(tw.Autotuner):
        def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **settings):
            super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **settings)
            assert not self.user_defined_pre_hook
            self.pre_hook = lambda arguments, reset_only=False: calls.append(reset_only)

    kernel, settings = tw.jit(add), {"pre_hook": None, "do_bench": bench([2, 1]), "warmup": None}
    mine = Mine(kernel, kernel.arg_names, steps(1, 2), ["n"], ["x_ptr"], None, **settings)
    mine[(1,)](np.zeros(8, np.float32), 8)
    assert mine.best_config.kwargs == {"STEP": 2}
    assert calls == [False] * 6 + [True]

"""`tilewright.testing`: comparing arrays, measuring, reports."""

import sys

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import LaunchError, Unsupported, testing
from tilewright.errors import UnknownName


def test_close_arrays():
    testing.assert_close(np.ones(3), np.ones(3) + 0.009)
    testing.assert_close(np.array([1e6]), np.array([1e6 + 1]), atol=0, rtol=1e-5)
    testing.assert_close(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), atol=0, rtol=0)
    testing.assert_close(1.0, 1.001)
    testing.assert_close(np.ones(3), 1.0, err_msg="text")
    testing.assert_close(np.array([True]), np.array([True]))
    testing.assert_close([], [])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2, 3], [1, 2, 4.5], r"1 of 3 .* worst is at \(2,\): 3.0 instead of 4.5 .*1\.5"),
        ([[1, 5], [2, 2]], [[1, 2], [1, 2]], r"2 of 4 .* at \(0, 1\)"),
        ([1, np.nan], [5, 1], r"2 of 2 .* at \(1,\): nan instead of 1.0"),
        ([np.inf], [-np.inf], r"inf instead of -inf"),
        ([1, 2], [1, 2, 3], r"the shapes differ: \(2,\) and \(3,\)"),
        (1.0, 2.0, r"the worst is: 1.0 instead of 2.0"),
    ],
)
def test_the_message_shows_the_worst_element(x, y, message):
    with pytest.raises(AssertionError, match=message):
        testing.assert_close(x, y)
    with pytest.raises(AssertionError, match=r"^here: "):
        testing.assert_close(x, y, err_msg="here")


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no float holds 64 bits here")
def test_integers_of_64_bits_are_compared_exactly():
    for dtype in (np.int64, np.uint64):
        x = np.array([2**53, 3], dtype)
        testing.assert_close(x, x, atol=0)
        with pytest.raises(AssertionError, match="1 of 2 elements"):
            testing.assert_close(x, x + np.array([1, 0], dtype), atol=0)


def test_close_tensors():
    torch = pytest.importorskip("torch")
    x = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    testing.assert_close(x, torch.ones(3))
    with pytest.raises(AssertionError, match=r"2\.0"):
        testing.assert_close(x, torch.full((3,), 2.0))


def test_do_bench():
    calls = []
    for mode in ("mean", "median", "min", "max"):
        time = testing.do_bench(lambda: calls.append(1), warmup=0.1, rep=0.5, return_mode=mode)
        assert time > 0
    assert calls
    settings = {"warmup": 0.1, "rep": 0.5}
    times = testing.do_bench(lambda: None, return_mode="all", **settings)
    assert min(times) > 0
    low, high = testing.do_bench(lambda: None, quantiles=[0.2, 0.8], **settings)
    assert 0 < low <= high
    assert testing.do_bench(lambda: None, quantiles=[0.5], **settings) > 0
    with pytest.raises(ValueError, match="mean, median"):
        testing.do_bench(lambda: None, return_mode="mode")


def test_do_bench_drops_gradients():
    class Tensor:
        grad = 1

    tensor = Tensor()
    testing.do_bench(lambda: None, warmup=0.1, rep=0.1, grad_to_none=[tensor])
    assert tensor.grad is None


def test_what_a_gpu_can_do_at_most(fake_driver):
    assert testing.get_dram_gbps(0) == pytest.approx(4916.7, 1e-4)
    assert testing.get_max_tensorcore_tflops(tl.float16, device=0) == pytest.approx(1070.5, 1e-3)
    assert testing.get_max_tensorcore_tflops(tl.float16, 1_830_000, 0) == pytest.approx(989, 1e-3)
    assert testing.get_max_tensorcore_tflops(tl.float8e5, 1_830_000, 0) == pytest.approx(1979, 1e-3)
    assert testing.get_max_simd_tflops(tl.float32, device=0) == pytest.approx(66.9, 1e-3)
    with pytest.raises(LaunchError, match="no tensor cores for i64"):
        testing.get_max_tensorcore_tflops(tl.int64, device=0)
    with pytest.raises(LaunchError, match="arithmetic on i32 is not known"):
        testing.get_max_simd_tflops(tl.int32, device=0)


def test_nvsmi(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="no `nvidia-smi`"):
        testing.nvsmi(["clocks.max.sm"])
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\n[ "$3" = "--query-gpu=clocks.max.sm,clocks.sm" ] && echo 1980, 345\n'
    )
    tool.chmod(0o755)
    assert testing.nvsmi(["clocks.max.sm", "clocks.sm"]) == [1980, 345]
    with pytest.raises(Unsupported, match="nvidia-smi:"):
        testing.nvsmi(["clock"])


def test_recorded_launches_need_a_gpu():
    with pytest.raises(Unsupported, match="PyTorch's GPU, and there is none"):
        testing.do_bench_cudagraph(lambda: None)


@pytest.mark.parametrize("name", ["do_bench_proton", "set_gpu_clock", "cuda_memcheck"])
def test_what_is_not_there_says_what_is(name):
    with pytest.raises(UnknownName, match=rf"`tilewright.testing.{name}` .* not there yet\n.*`"):
        getattr(testing, name)


BENCHMARK = testing.Benchmark(
    x_names=["n", "m"],
    x_vals=[1, 2, (3, 4)],
    line_arg="provider",
    line_vals=["a", "b"],
    line_names=["A", "B"],
    plot_name="plot",
    args={"scale": 10},
)


@testing.perf_report(BENCHMARK)
def measure(n, m, provider, scale, offset=0):
    value = scale * (n + m) + (provider == "b") + offset
    return value if provider == "a" else (value, value - 1, value + 1)


def test_tables_are_printed_and_saved_without_other_packages(tmp_path, capsys, monkeypatch):
    for package in ("pandas", "matplotlib"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert measure.run(print_data=True, save_path=str(tmp_path / "plots"), offset=100) is None
    assert capsys.readouterr().out.splitlines() == [
        *("plot:", "   n  m    A    B"),
        *("0  1  1  120  121", "1  2  2  140  141", "2  3  4  170  171"),
    ]
    saved = (tmp_path / "plots" / "plot.csv").read_text().split()
    assert saved == ["n,m,A,B", "1,1,120,121", "2,2,140,141", "3,4,170,171"]
    with pytest.raises(Unsupported, match=r"tables to return need pandas(.|\n)*tilewright\[plot\]"):
        measure.run(return_df=True)
    with pytest.raises(Unsupported, match="plots need matplotlib"):
        measure.run(show_plots=True)


def test_tables_as_data_frames():
    pytest.importorskip("pandas")
    table = measure.run(return_df=True, offset=100)
    assert table["A"].tolist() == [120, 140, 170]
    assert table["B-max"].tolist() == [122, 142, 172]
    assert isinstance(testing.perf_report([BENCHMARK])(measure.fn).run(return_df=True), list)


def test_plots(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    measure.run(save_path=str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plot.csv", "plot.png"]


def test_the_public_names_are_there():
    for name in tw.__all__:
        assert getattr(tw, name) is not None
    with pytest.raises(AttributeError, match="tilewright has no `nothing`"):
        tw.nothing  # noqa: B018
    count = tw.get_num_threads()
    tw.set_num_threads(1)
    assert tw.get_num_threads() == 1
    tw.set_num_threads(count)

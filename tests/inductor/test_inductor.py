"""Inductor's kernels and those of users, compiled by Tilewright, beside eager mode."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tilewright as tw
from tests.inductor.graphs import GRAPHS

pytestmark = [pytest.mark.usefixtures("compiling"), pytest.mark.filterwarnings("ignore")]

# One of each kind, for every day.
SOME = frozenset({
    "argmax_nan", "bitcast", "cumsum_long", "dropout", "embedding_gradient", "index_add",
    "layer_norm", "linear_gelu", "max_pool_gradient", "quantize", "rotary", "softmax",
})  # fmt: skip

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))

# What Inductor leaves to PyTorch's own kernels on the CPU.
WITHOUT_KERNELS = frozenset({
    "adaptive_avg_pool", "attention", "attention_by_hand", "conv1d", "conv3d", "digamma", "dropout",
    "einsum", "gcd_int", "i0e", "i1e", "kthvalue", "linear_row", "median", "positive", "pow_int",
    "randint", "topk",
})  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in SOME else pytest.mark.slow) for n in GRAPHS]
)
def test_compiled_graphs_equal_eager_mode(name):
    from tests.inductor.sweep import check

    assert (check(name, "cpu") > 0) == (name not in WITHOUT_KERNELS)


def test_there_are_enough_graphs():
    assert len(GRAPHS) >= 230


@pytest.mark.slow
def test_a_transformer_learns_the_same():
    from tests.inductor.transformer import check_training

    check_training("cpu")


# ---- kernels of users


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["call_scaled_sum", "call_in_place", "call_tuned"])
def test_kernels_of_users(name, dynamic):
    from tests.inductor import user_kernels

    if name == "call_in_place" and dynamic and VERSION < (2, 13):
        pytest.skip("an assertion of PyTorch's own stops it, whoever compiles the kernel")
    function = getattr(user_kernels, name)
    arguments = [numbers(1000) for _ in range(1 if name == "call_tuned" else 2)]
    torch._dynamo.reset()
    actual = torch.compile(function, fullgraph=True, dynamic=dynamic)(*arguments)
    torch.testing.assert_close(actual, function(*arguments))


def test_what_a_kernel_only_reads_is_not_copied():
    from torch._inductor.utils import run_and_get_code

    from tests.inductor import user_kernels

    torch._dynamo.reset()
    x, y = numbers(1000), numbers(1000)
    compiled = torch.compile(user_kernels.call_scaled_sum, fullgraph=True)
    _, (code,) = run_and_get_code(compiled, x, y)
    assert ".copy_(" not in code
    assert "clone" not in code
    (launch,) = (line for line in code.splitlines() if "scaled_sum_0.run(" in line)
    assert ", arg1_1, " in launch


def test_hooks_are_told_of_the_launches_of_compiled_functions():
    import triton
    from torch._inductor.utils import fresh_cache

    from tests.inductor import user_kernels

    names = []

    def note(metadata):
        names.append(metadata.get()["name"])

    arguments = numbers(1000), numbers(1000)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: user_kernels.call_scaled_sum(x, y).sin(), fullgraph=True)
    # PyTorch looks for hooks when it loads a kernel: without any, later ones are told None. So
    # the kernels that other tests have loaded are out of the way.
    triton.knobs.runtime.launch_enter_hook.add(note)
    try:
        with fresh_cache():
            compiled(*arguments)
            names.clear()  # launches that measured are among them
            compiled(*arguments)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(note)
    assert [n.split("_")[0] for n in names] == ["triton", "scaled", "triton"]


def test_which_arguments_are_written():
    from tests.inductor import user_kernels as kernels
    from tilewright.torch.accesses import written_arguments

    x = numbers(16)
    arguments = {"x_ptr": x, "y_ptr": x, "out_ptr": x, "n": 16, "BLOCK": 16, "num_warps": 4}
    assert written_arguments(kernels.scaled_sum, arguments) == ["out_ptr"]
    assert written_arguments(kernels.add_in_place, arguments) == ["x_ptr"]
    assert written_arguments(kernels.tuned, {**arguments, "BLOCK": None}) == ["out_ptr"]
    # The second configuration writes to another array than the first; the third is refused.
    either = {"x_ptr": x, "a_ptr": x, "b_ptr": x, "n": 16}
    assert written_arguments(kernels.tuned_to_either, either) == ["a_ptr", "b_ptr"]
    described = {"source": x.view(2, 8), "target": x.view(2, 8), "n": torch.sym_int(3)}
    blocks = {"source": (2, 8), "target": (2, 8)}
    assert written_arguments(kernels.copy_blocks, described, blocks) == ["target"]


def test_kernels_all_of_whose_configurations_are_refused():
    from tests.inductor import user_kernels as kernels
    from tilewright.torch.accesses import written_arguments

    x = numbers(16)
    refused = tw.autotune([tw.Config({"TO_FIRST": None, "BLOCK": 64})], key=["n"])
    kernel = refused(kernels.tuned_to_either.fn)
    with pytest.raises(tw.CompileError, match="IS_WHOLE"):
        written_arguments(kernel, {"x_ptr": x, "a_ptr": x, "b_ptr": x, "n": 16})


# ---- processes and caches

SCRIPT = """
import sys
import torch
from torch._dynamo.utils import counters
from torch._inductor.async_compile import AsyncCompile
import torch._inductor.config as inductor
import triton

inductor.cpu_backend = "triton"
inductor.compile_threads = 2
here = []
compile = triton.compile
triton.compile = lambda *args, **named: here.append(1) or compile(*args, **named)

@torch.compile
def function(x):
    return x.sin().softmax(-1), x.cumsum(-1) * 2

x = torch.randn(8, 100, generator=torch.Generator().manual_seed(0)).to(sys.argv[1])
AsyncCompile.wait_pool_ready()
actual = function(x)
torch.testing.assert_close(actual, (x.sin().softmax(-1), x.cumsum(-1) * 2))
print("here", len(here), "hits", counters["inductor"]["fxgraph_cache_hit"])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]
)
def test_compile_workers_and_caches(device, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "kernels"))
    program = tmp_path / "program.py"
    program.write_text(SCRIPT)
    said = []
    for _ in range(2):
        command = [sys.executable, "-m", "tilewright", str(program), device]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        kept = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "kernels").iterdir()}
        said.append((done.stdout.strip(), kept))
    # First the workers compile; then the graph is found, and its kernels.
    assert said[0][0] == "here 0 hits 0"
    assert said[1][0].endswith("hits 1")
    assert sum(name.startswith("triton_") for name in said[0][1]) >= 2
    assert said[1][1] == said[0][1]


@pytest.mark.slow
def test_the_example_of_the_documentation(tmp_path, monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", str(root))
    page = (root / "docs" / "torch_compile.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    assert "torch.compile" in example
    program = tmp_path / "example.py"
    program.write_text(example)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


# ---- GPUs


@pytest.mark.gpu
@needs_gpu
@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, 9))
def test_compiled_graphs_on_a_gpu(part):
    command = [
        *(sys.executable, "-m", "tilewright", "-m", "tests.inductor.sweep"),
        *("--device", "cuda", "--part", f"{part}/8"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "\n".join(x for x in done.stdout.splitlines() if "DIFFERS" in x)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.slow
def test_a_transformer_learns_the_same_on_a_gpu():
    command = [sys.executable, "-m", "tilewright", "-m", "tests.inductor.transformer", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

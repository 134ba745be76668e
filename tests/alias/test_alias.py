"""`triton` as another name of Tilewright: in this process, in its children, and taken back."""

import importlib
import importlib.metadata
import importlib.util
import os
import pickle
import pkgutil
import platform
import subprocess
import sys
import types
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

import tilewright as tw
import tilewright.compiler.backend
import tilewright.language as tl
import tilewright.tools.mxfp
import tilewright.tools.ragged_tma
from tilewright import alias
from tilewright.errors import AliasConflict, LaunchError, UnknownName, Unsupported
from tilewright.target import nvidia_target

ROOT = Path(__file__).resolve().parent.parent.parent

# What packages and PyTorch import from Triton, and where it is ours.
SAME = [
    ("triton.jit", tw.jit),
    ("triton.Config", tw.Config),
    ("triton.autotune", tw.autotune),
    ("triton.heuristics", tw.heuristics),
    ("triton.cdiv", tw.cdiv),
    ("triton.language", tl),
    ("triton.language.core", tl.core),
    ("triton.language.core.dtype", tl.dtype),
    ("triton.language.core.CONSTEXPR_0", tl.core.CONSTEXPR_0),
    ("triton.language.math", tl.math),
    ("triton.language.math.tanh", tl.tanh),
    ("triton.language.standard", tl.standard),
    ("triton.language.extra.libdevice", tl.extra.libdevice),
    ("triton.language.extra.cuda.libdevice", tl.extra.cuda.libdevice),
    ("triton.testing", tw.testing),
    ("triton.tools.tensor_descriptor", tw.tools.tensor_descriptor),
    ("triton.tools.mxfp", tilewright.tools.mxfp),
    ("triton.tools.ragged_tma", tilewright.tools.ragged_tma),
    ("triton.runtime.jit.JITFunction", tw.JITFunction),
    ("triton.runtime.JITFunction", tw.JITFunction),
    ("triton.runtime.autotuner.Autotuner", tw.Autotuner),
    ("triton.runtime.autotuner.OutOfResources", tw.Unsupported),
    ("triton.runtime.errors.OutOfResources", tw.Unsupported),
    ("triton.aggregate", tw.aggregate),
    ("triton.must_use_result", tw.must_use_result),
    ("triton.compiler.make_backend", tilewright.compiler.backend.make_backend),
    ("triton.language.target_info", tl.target_info),
    ("triton.compiler.errors.CompilationError", tw.CompileError),
    ("triton.compiler.CompilationError", tw.CompileError),
]

PROGRAM = """\
import os, sys
import numpy as np
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i))

def doubled(n):
    x = np.arange(n, dtype=np.float32)
    double[(1,)](x, BLOCK=n)
    return float(x.sum()), triton.__version__

if __name__ == "__main__":
    print(__file__, sys.argv[1:], os.path.samefile(sys.path[1], os.path.dirname(__file__)))
    print(doubled(8))
"""

IN_CHILDREN = (
    PROGRAM
    + """
    import multiprocessing, subprocess
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.apply(doubled, (4,)))
    code = "import triton, tilewright; print(triton.jit is tilewright.jit, triton.__version__)"
    print(subprocess.check_output([sys.executable, "-c", code], cwd="/", text=True).strip())
"""
)


@pytest.fixture
def installed():
    alias.install()
    yield importlib.import_module("triton")
    alias.uninstall()


@pytest.fixture(autouse=True)
def put_back(monkeypatch):
    other = sys.modules.get("triton")
    if other is not None and not other.__version__.endswith("+tilewright"):
        pytest.skip("Triton itself has been imported, by PyTorch in other tests")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", list(sys.path))


def resolve(path):
    """The object at a dotted path, every module in it imported as programs do."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = getattr(found, name)
        return found
    raise AssertionError(path)


def run(*arguments, cwd):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PYTHONPATH"] = str(ROOT)
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(("path", "ours"), SAME, ids=[path for path, _ in SAME])
def test_names_are_the_same_objects(installed, path, ours):
    assert resolve(path) is ours


def test_every_module_lists_what_it_has(installed):
    for info in pkgutil.walk_packages(installed.__path__, "triton."):
        module = importlib.import_module(info.name)
        assert module.__doc__, info.name
        assert all(hasattr(module, name) for name in module.__all__), info.name


def test_modules_of_ours_are_loaded_once(installed):
    for info in pkgutil.walk_packages(tl.__path__, "tilewright.language."):
        theirs = importlib.import_module(info.name.replace("tilewright", "triton", 1))
        assert theirs is importlib.import_module(info.name)


def test_what_is_known_of_it_without_importing_it():
    alias.install()
    assert importlib.util.find_spec("triton").origin.startswith(alias.PATH)
    assert importlib.metadata.version("triton") == importlib.import_module("triton").__version__
    alias.uninstall()


def test_the_version_parses_and_says_who_answers(installed):
    assert tuple(int(part) for part in installed.__version__.split(".")[:2]) >= (3, 6)
    assert "tilewright" in installed.__version__


def test_uninstalling_leaves_nothing():
    before = list(sys.path), os.environ.get("PYTHONPATH"), {n for n in sys.modules if "triton" in n}
    alias.install()
    alias.install()
    assert alias.is_installed()
    kernel = importlib.import_module("triton").jit
    alias.uninstall()
    alias.uninstall()
    assert not alias.is_installed()
    assert kernel is tw.jit
    assert before[0] == sys.path
    assert (before[1] or None) == (os.environ.get("PYTHONPATH") or None)
    assert before[2] == {n for n in sys.modules if "triton" in n}


def test_pytorch_asks_again_whether_there_is_triton():
    has_triton_package = pytest.importorskip("torch.utils._triton").has_triton_package
    there = has_triton_package()
    alias.install()
    assert has_triton_package()
    alias.uninstall()
    assert has_triton_package() == there


def test_triton_itself_is_not_replaced(monkeypatch):
    real = types.ModuleType("triton")
    real.__file__ = "/somewhere/triton/__init__.py"
    monkeypatch.setitem(sys.modules, "triton", real)
    with pytest.raises(AliasConflict, match=r"has been imported, from /somewhere"):
        alias.install()
    assert not alias.is_installed()
    alias.uninstall()
    assert sys.modules["triton"] is real


def test_it_is_never_there_by_itself(tmp_path):
    code = "import sys, tilewright.alias as a; print(a.PATH in sys.path, 'triton' in sys.modules)"
    assert run("-c", code, cwd=tmp_path) == (0, "False False\n", "")


def test_a_program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    status, output, errors = run("-m", "tilewright", path, "-x", "check", cwd=ROOT)
    assert (status, errors) == (0, "")
    assert output == f"{path} ['-x', 'check'] True\n(56.0, '3.6.0+tilewright')\n"


def test_a_module(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    status, output, errors = run("-m", "tilewright", "-m", "program", "a", cwd=tmp_path)
    assert (status, errors) == (0, "")
    assert output.splitlines()[0] == f"{tmp_path / 'program.py'} ['a'] True"


def test_child_processes(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(IN_CHILDREN)
    status, output, errors = run("-m", "tilewright", path, cwd=tmp_path)
    assert (status, errors) == (0, "")
    child = "(12.0, '3.6.0+tilewright')"
    assert output.splitlines()[2:] == [child, child, "True 3.6.0+tilewright"]


@pytest.mark.parametrize(
    ("text", "status", "error"),
    [("raise SystemExit(3)", 3, ""), ("1 / 0", 1, "ZeroDivisionError")],
)
def test_how_a_program_ends(tmp_path, text, status, error):
    path = tmp_path / "program.py"
    path.write_text(text)
    found, _, errors = run("-m", "tilewright", path, cwd=tmp_path)
    assert found == status
    assert error in errors
    assert "runpy" not in errors
    assert "cli" not in errors


def test_kernels_of_both_names_are_one_kind(installed):
    @tw.jit
    def ours(x_ptr):
        tl.store(x_ptr, 1.0)

    assert isinstance(ours, installed.JITFunction)
    assert isinstance(ours, installed.KernelInterface)
    tuned = installed.autotune([installed.Config({})], key=[])(ours)
    assert isinstance(tuned, tw.Autotuner)
    assert isinstance(tuned, installed.KernelInterface)


def test_a_class_around_a_kernel(installed):
    class Twice(installed.KernelInterface):
        def __init__(self, fn):
            self.fn = fn

        def run(self, *args, grid, warmup, **kwargs):
            for _ in range(2):
                self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)

    @installed.jit
    def increment(x_ptr):
        tl.store(x_ptr, tl.load(x_ptr) + 1)

    x = np.zeros(1, np.float32)
    Twice(increment)[(1,)](x)
    assert x[0] == 2


def test_the_active_driver(installed):
    driver = installed.runtime.driver.active
    target = driver.get_current_target()
    assert isinstance(target, resolve("triton.backends.compiler.GPUTarget"))
    assert target.backend in {"cpu", "cuda"}
    assert driver.utils.get_device_properties(0)["multiprocessor_count"] > 0
    assert resolve("triton.runtime.driver.driver") is installed.runtime.driver
    assert "cpu" in installed.backends.backends


def test_pytorch_knows_a_gpu_where_the_driver_does_not_answer(installed, monkeypatch):
    nvidia = installed.backends.backends["nvidia"].driver
    version = types.SimpleNamespace(cuda="13.0")
    for available in (True, False):
        cuda = types.SimpleNamespace(is_available=lambda there=available: there)
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, version=version))
        monkeypatch.setattr("tilewright.runtime.cuda.driver", _refuse)
        assert nvidia.is_active() == available


def _refuse():
    raise LaunchError("the driver cannot be used behind a fork")


def test_another_driver_is_told_about(installed):
    cpu = installed.backends.backends["cpu"].driver()
    installed.runtime.driver.set_active(cpu)
    assert installed.runtime.driver.active is cpu
    installed.runtime.driver.reset_active()
    assert installed.runtime.driver.active is not cpu


def test_host_code_is_told_of_the_driver_that_is_active(installed, monkeypatch):
    monkeypatch.setattr("tilewright.runtime.default_target.has_gpu", lambda: True)
    monkeypatch.setattr("tilewright.runtime.cuda.device", _gpu)
    active = installed.runtime.driver
    try:
        for name, expected in (("nvidia", ("cuda", 90)), ("cpu", ("cpu", platform.machine()))):
            active.set_active(installed.backends.backends[name].driver())
            target = active.active.get_current_target()
            assert (target.backend, target.arch) == expected
            assert tl.target_info.current_target() == (*expected, target.warp_size)
    finally:
        active.reset_active()
    assert tl.target_info.is_cuda()


def _gpu(_number):
    return types.SimpleNamespace(target=nvidia_target(9, 0))


def test_interpreted_kernels_are_told_apart(installed, monkeypatch):
    def kernel(x_ptr):
        tl.store(x_ptr, 1.0)

    compiled = tw.jit(kernel)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kind = resolve("triton.runtime.interpreter.InterpretedFunction")
    assert isinstance(tw.jit(kernel), kind)
    assert not isinstance(compiled, kind)


def test_host_code_raises_that_nothing_fits(installed):
    error = resolve("triton.runtime.errors.OutOfResources")(1024, 512, "shared memory")
    assert str(error) == "out of shared memory: 1024 are required, and the limit is 512"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_switches(installed, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    switches = installed.knobs.runtime
    assert not switches.interpret
    with switches.scope():
        switches.interpret = True
        assert switches.interpret
        assert os.environ["TRITON_INTERPRET"] == "1"
    assert not switches.interpret
    with pytest.raises(UnknownName, match=r"knobs\.runtime\.nothing.*no such switch"):
        switches.nothing = 1


def test_hooks_are_set_and_put_back(installed):
    kept = installed.knobs.runtime

    @installed.jit
    def kernel(x_ptr):
        tl.store(x_ptr, 1.0)

    names = []
    with kept.scope():
        assert not kept.launch_enter_hook
        kept.launch_enter_hook = lambda facts: names.append(facts.get()["name"])
        kept.launch_exit_hook.add(lambda facts: names.append("end"))
        kept.jit_cache_hook = lambda **told: names.append(told["fn"].name)
        kernel[(1,)](np.zeros(1, np.float32))
        kept.launch_enter_hook = None
        kernel[(1,)](np.zeros(1, np.float32))
    assert names[0].endswith("kernel")
    assert names[1:] == ["kernel", "end", "end"]
    kernel[(1,)](np.zeros(1, np.float32))
    assert len(names) == 4
    assert kept.jit_cache_hook is None


def test_what_would_change_the_code_and_cannot_is_only_read(installed):
    compilation = installed.knobs.compilation
    assert compilation.override is False
    compilation.override = False
    with compilation.scope(), pytest.raises(Unsupported, match="ir_override") as raised:
        compilation.override = True
    assert "knobs.compilation.override" in str(raised.value)
    with pytest.raises(Unsupported, match="emulate"):
        compilation.instrumentation_mode = "consan"


# Every switch of Triton by its group, what it is by default, and its variable.
SWITCHES = {
    "autotuning": {"cache": False, "print": False},
    "build": {"cc": None, "cudacrt_path": None, "cudart_path": None, "impl": None},
    "cache": {
        "home_dir": str(Path.home()),
        "dump_dir": str(Path.home() / ".triton" / "dump"),
        "override_dir": str(Path.home() / ".triton" / "override"),
        "manager_class": None,
        "remote_manager_class": None,
    },
    "compilation": {
        "override": False,
        "dump_ir": False,
        "dump_ir_extract_di_local_variables": False,
        "store_binary_only": False,
        "always_compile": False,
        "use_ir_loc": None,
        "enable_asan": False,
        "disable_line_info": False,
        "front_end_debugging": False,
        "allow_non_constexpr_globals": False,
        "instrumentation_mode": "",
    },
    "language": {"fp32_default": None, "default_fp_fusion": True},
    "nvidia": {
        "dump_nvptx": False,
        "disable_ptxas_opt": False,
        "ptxas_options": None,
        "mock_ptx_version": None,
        "dump_ptxas_log": False,
        "libdevice_path": None,
        "libcuda_path": None,
    },
    "runtime": {"debug": False, "interpret": False, "override_arch": None},
    "redis": {"key_format": "triton:{key}:{filename}", "host": "localhost", "port": 6379},
    "amd": {"use_buffer_ops": True, "dump_amdgcn": False, "libhip_path": None},
    "proton": {"disable": False, "enable_nvtx": True},
}


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_by_default(installed, monkeypatch, name):
    for variable in [
        v for v in os.environ if v.startswith(("TRITON_", "TILEWRIGHT_")) or v == "CC"
    ]:
        monkeypatch.delenv(variable)
    group = getattr(installed.knobs, name)
    known = {switch: getattr(group, switch) for switch in SWITCHES[name]}
    assert known == SWITCHES[name]
    assert set(known) <= set(dir(group))
    if name != "nvidia":  # whose tools may not be here
        assert known.items() <= group.knobs.items()


def test_switches_are_copied_and_reset(installed, monkeypatch):
    monkeypatch.setenv("PTXAS_OPTIONS", "-v")
    language, nvidia = installed.knobs.language, installed.knobs.nvidia
    with language.scope():
        language.default_fp_fusion = False
        before = language.copy()
        assert language.reset().default_fp_fusion is True
        assert before.default_fp_fusion is False
    assert nvidia.ptxas_options == "-v"
    nvidia.ptxas_options = installed.knobs.env
    assert nvidia.ptxas_options == "-v"
    with nvidia.scope():
        nvidia.ptxas_options = None
        assert "PTXAS_OPTIONS" not in os.environ
    installed.knobs.refresh_knobs()


def test_tools_are_asked_for_their_version(installed, monkeypatch, tmp_path):
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tool))
    assert installed.knobs.nvidia.ptxas == (str(tool), "13.0")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "none"))
    with pytest.raises(Unsupported, match="cannot be run"):
        _ = installed.knobs.nvidia.ptxas


def test_drivers_are_told_apart(installed):
    bases = resolve("triton.backends.driver")
    active = installed.runtime.driver.active
    assert isinstance(active, bases.DriverBase)
    assert not isinstance(alias.drivers.CpuDriver(), bases.GPUDriver)
    assert isinstance(alias.drivers.NvidiaDriver(), bases.GPUDriver)
    if not isinstance(active, bases.GPUDriver):
        assert resolve("triton.compiler.max_shared_mem")(0) == 0


def test_the_default_backend(installed, monkeypatch):
    choice = type(installed.runtime.driver)()
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "cpu")
    assert choice.active.get_current_target().backend == "cpu"
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "hip")
    with pytest.raises(LaunchError, match="one of nvidia, cpu"):
        _ = type(choice)().active


def test_variables_of_triton(installed, monkeypatch, tmp_path):
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "1")
    assert installed.knobs.cache.dir == str(tmp_path)

    @installed.jit
    def kernel(x_ptr, STEP: tl.constexpr):
        tl.store(x_ptr, STEP)

    tuned = installed.autotune([installed.Config({"STEP": s}) for s in (1, 2)], key=[])(kernel)
    assert tuned.cache_results
    kernel[(1,)](np.zeros(1, np.float32), STEP=3)
    assert list(tmp_path.glob("kernel-*"))


def test_what_generators_of_kernels_ask_for(installed):
    assert installed.compile is tw.compiler.compile
    assert resolve("triton.compiler.compiler.ASTSource") is tw.compiler.ASTSource
    assert resolve("triton.compiler.CompiledKernel") is tw.compiler.CompiledSource
    target = installed.runtime.driver.active.get_current_target()
    assert resolve("triton.compiler.compiler.make_backend")(target).hash()
    assert resolve("triton.runtime.cache._base32")("00ff") == "AD7Q"


def test_constexpr_functions_tell_their_source(installed):
    @installed.constexpr_function
    def half(n):
        return n // 2

    assert isinstance(half, resolve("triton.runtime.jit.ConstexprFunction"))
    assert half.src.startswith("def half(n):")
    assert half.fn(8) == half(8) == 4


def test_files_beside_compiled_kernels(installed, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    cache = resolve("triton.runtime.cache")
    manager = cache.get_cache_manager("00ff")
    assert isinstance(manager, cache.FileCacheManager)
    assert manager.get_file("a.so") is manager.get_group("a.json") is None
    path = manager.put(b"code", "a.so")
    assert Path(path).read_bytes() == b"code"
    assert path == str(tmp_path / "AD7Q" / "a.so")
    manager.put_group("a.json", {"a.so": path})
    assert cache.get_cache_manager("00ff").get_group("a.json") == {"a.so": path}
    Path(path).unlink()
    assert manager.get_group("a.json") is None
    with pytest.raises(tw.Unsupported, match="neither replaced nor written down"):
        cache.FileCacheManager("AD7Q", dump=True)


def test_a_program_keeps_its_files_by_a_class_of_its_own(installed, monkeypatch):
    cache = resolve("triton.runtime.cache")
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "pathlib:PurePosixPath")
    assert cache.get_cache_manager("00ff") == PurePosixPath("AD7Q")
    for wrong in ("collections", "collections:Missing", "no_such_module:Class", ":Class"):
        monkeypatch.setenv("TRITON_CACHE_MANAGER", wrong)
        with pytest.raises(tw.LaunchError, match="TRITON_CACHE_MANAGER"):
            cache.get_cache_manager("00ff")

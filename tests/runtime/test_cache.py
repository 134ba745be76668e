"""The disk cache: many processes, damaged files, directories that fail, keys."""

import errno
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import jit
from tilewright.runtime import build, cache
from tilewright.runtime.fingerprint import build_fingerprint, cached_object

ROOT = Path(__file__).resolve().parents[2]

KERNELS = """
    import sys
    import numpy as np
    import tilewright as tw
    import tilewright.language as tl

    @tw.jit
    def scale(x_ptr, FACTOR: tl.constexpr):
        i = tl.program_id(0)
        tl.store(x_ptr + i, tl.load(x_ptr + i) * FACTOR)

    def check(factors):
        for factor in factors:
            x = np.arange(8, dtype=np.float32)
            scale[(8,)](x, FACTOR=factor)
            assert (x == np.arange(8) * factor).all(), x
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    path = tmp_path / "cache"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(path))
    monkeypatch.setattr(cache._Warned, "already", False)
    return path


def make_kernel(factor=3):
    @jit
    def scale(x_ptr, FACTOR: tl.constexpr = factor):
        tl.store(x_ptr, tl.load(x_ptr) * FACTOR)

    return scale


def run(kernel, **constants):
    x = np.ones(1, np.float32)
    kernel[(1,)](x, **constants)
    return x[0]


def entries(directory):
    return sorted(directory.glob("scale-*.tilewright"))


@pytest.fixture
def compiles(monkeypatch):
    """Counts the kernels that are really compiled."""
    made = []
    lower = build.lower

    def counting(request):
        made.append(request)
        return lower(request)

    monkeypatch.setattr(build, "lower", counting)
    return made


def test_entries(directory):
    assert cache.read_entry("name") is None
    cache.write_entry("name", {"a": [1, None]}, b"\0\1")
    entry = cache.read_entry("name")
    assert entry.header == {"a": [1, None]}
    assert entry.payload == b"\0\1"
    cache.write_entry("name", {})
    assert cache.read_entry("name") == cache.Entry({}, b"")
    assert [path.name for path in directory.iterdir()] == ["name.tilewright"]


def test_objects_are_made_once(directory):
    assert cached_object("key", lambda: b"object") == b"object"
    assert cached_object("key", lambda: b"other") == b"object"
    assert cached_object("other key", lambda: b"other") == b"other"


def test_a_kernel_is_compiled_once(directory, compiles):
    assert run(make_kernel()) == 3
    assert run(make_kernel()) == 3
    assert len(compiles) == 1
    assert run(make_kernel(), FACTOR=4) == 4
    assert len(compiles) == 2
    assert len(entries(directory)) == 2


def test_a_kernel_from_the_cache_is_complete(directory):
    def kernel(x_ptr, n):
        tl.device_assert(n < 5, "too large")
        tl.store(x_ptr, n)

    for _ in range(2):
        x = np.zeros(1, np.int32)
        compiled = jit(kernel, debug=True)[(1,)](x, 4)
        assert x[0] == 4
        assert compiled.code.written == {"x_ptr"}
        assert "func @kernel" in compiled.asm["tir"]
        assert "kernel_kernel:" in compiled.asm["asm"]
        with pytest.raises(Exception, match=r"(?s)too large.*device_assert"):
            jit(kernel, debug=True)[(1,)](x, 6)
        x.flags.writeable = False
        with pytest.raises(Exception, match="read-only"):
            jit(kernel, debug=True)[(1,)](x, 4)


def test_constants_that_no_other_process_knows_stay_here(directory, compiles):
    class Odd:
        value = 5

    @jit
    def scale(x_ptr, ODD: tl.constexpr):
        tl.store(x_ptr, 1.0)

    odd = Odd()
    run(scale, ODD=odd)
    run(scale, ODD=odd)
    assert len(compiles) == 1
    assert not entries(directory)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:10],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
        lambda data: data.replace(b"symbol", b"simbol"),
        lambda data: b"tilewright-0" + data[12:],
        lambda data: b"\xff" * len(data),
        lambda data: data + b"\0",
    ],
)
def test_damaged_files_are_replaced(directory, compiles, damage):
    run(make_kernel())
    (path,) = entries(directory)
    whole = path.read_bytes()
    assert damage(whole) != whole
    path.write_bytes(damage(whole))
    assert run(make_kernel()) == 3
    assert len(compiles) == 2
    assert path.read_bytes() == whole
    assert run(make_kernel()) == 3
    assert len(compiles) == 2


def test_an_entry_that_is_a_directory(directory, compiles):
    run(make_kernel())
    (path,) = entries(directory)
    path.unlink()
    path.mkdir()
    with pytest.warns(RuntimeWarning, match="are not kept"):
        assert run(make_kernel()) == 3


def test_a_directory_that_cannot_be_made(tmp_path, directory, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(RuntimeWarning, match="TILEWRIGHT_CACHE_DIR"):
        assert run(make_kernel()) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(make_kernel(4)) == 4  # one warning is enough


def fail(monkeypatch, name, number, times=10**9):
    """Make a function of `os` raise an OSError the first `times` times that the cache uses it."""
    original = getattr(os, name)
    count = iter(range(times))

    def failing(path, *args, **kwargs):
        if str(path).endswith(".tmp") and next(count, None) is not None:
            raise OSError(number, os.strerror(number), str(path))
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, name, failing)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_a_full_or_read_only_directory(directory, monkeypatch, number):
    fail(monkeypatch, "open", number)
    with pytest.warns(RuntimeWarning, match=os.strerror(number)):
        assert run(make_kernel()) == 3
    assert not entries(directory)


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ENOENT, errno.ESTALE])
@pytest.mark.parametrize("times", [1, 10**9])
@pytest.mark.parametrize("name", ["replace", "open"])
def test_errors_that_pass(directory, monkeypatch, number, times, name):
    fail(monkeypatch, name, number, times)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(make_kernel()) == 3
    assert len(entries(directory)) == (times == 1)
    assert not list(directory.glob(".*"))


def test_a_directory_that_vanishes(directory, compiles, monkeypatch):
    replace = os.replace

    def clear_first(source, target):
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
        monkeypatch.setattr(os, "replace", replace)
        replace(source, target)

    monkeypatch.setattr(os, "replace", clear_first)
    assert run(make_kernel()) == 3
    assert len(entries(directory)) == 1


# Keys.


def test_keys_depend_on_all_that_a_kernel_sees(directory, compiles):
    template = textwrap.dedent("""
        SIZE = tl.constexpr({size})

        @jit(source={helper!r})
        {helper}

        def scale(x_ptr, USE: tl.constexpr = True):
            if USE:
                tl.store(x_ptr, helper(tl.load(x_ptr)) + SIZE)
    """)

    def define(size=1, helper="def helper(x):\n    return x * 2\n", version=None):
        text = template.format(size=size, helper=helper)
        namespace = {"tl": tl, "jit": jit}
        exec(text, namespace)
        source = text[text.index("def scale") :]
        return jit(source=source, version=version)(namespace["scale"])

    assert run(define()) == 3
    assert run(define()) == 3
    assert len(compiles) == 1
    assert run(define(size=2)) == 4
    assert run(define(helper="def helper(x):\n    return x * 3\n")) == 4
    assert len(compiles) == 3
    run(define(version="2"))
    assert len(compiles) == 4
    run(define(), USE=False)
    assert len(compiles) == 5


def test_keys_are_texts_with_borders():
    assert cache.digest(["ab", "c"]) != cache.digest(["a", "bc"])
    assert cache.digest(["a"]) != cache.digest(["a", ""])
    assert build_fingerprint() == build_fingerprint()


# Processes.


def start(script, directory):
    return subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_second_process_does_not_compile(tmp_path):
    script = tmp_path / "kernels.py"
    script.write_text(
        textwrap.dedent(KERNELS)
        + textwrap.dedent("""
            from pathlib import Path
            from tilewright import env
            if list(env.cache_directory().glob("scale-*")):
                from tilewright.runtime import build
                build.lower = None
            check([2, 3])
        """)
    )
    for _ in range(2):
        process = start(script, tmp_path / "cache")
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output


def test_eight_processes_fill_one_directory(tmp_path, monkeypatch):
    script = tmp_path / "kernels.py"
    script.write_text(
        textwrap.dedent(KERNELS)
        + textwrap.dedent("""
            import errno, os, random
            replace = os.replace
            def unreliable(source, target):
                if random.random() < 0.3:
                    raise OSError(random.choice([errno.EBUSY, errno.ENOENT, errno.ESTALE]), "test")
                replace(source, target)
            os.replace = unreliable
            order = list(range(2, 8))
            random.shuffle(order)
            check(order)
        """)
    )
    directory = tmp_path / "cache"
    processes = [start(script, directory) for _ in range(8)]
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        assert "Warning" not in output
    assert len(entries(directory)) == 6
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(directory))
    for path in entries(directory):
        assert cache.read_entry(path.name.removesuffix(".tilewright")) is not None
    assert not list(directory.glob(".*"))

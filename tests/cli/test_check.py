"""`tilewright check`: what it finds in programs, where, and its exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent

HEAD = """\
import sys
import numpy as np
import tilewright as tw
import tilewright.language as tl

"""

KERNEL = """
@tw.jit{options}
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i{more}, mask=i < n)
    tl.device_assert(x >= 0, "negative")
    tl.store(out_ptr + i{stride}, x + tl.sum(x))

x, out = np.arange(256, dtype=np.float32){start}, np.zeros(256 * 8, np.float32)
for _ in range(3):
    kernel[(2,)](x, out, {n}, BLOCK=256)
"""


@pytest.fixture
def check(tmp_path, capsys):
    """`check(text, *options)` returns the exit status and what is printed."""

    def run(text, *options, arguments=()):
        path = tmp_path / "program.py"
        path.write_text(HEAD + text)
        status = main(["check", *options, str(path), *arguments])
        run.err = (said := capsys.readouterr()).err
        return status, said.out

    return run


def program(more="", stride="", n=256, start="", options=""):
    return KERNEL.format(more=more, stride=stride, n=n, start=start, options=options)


def test_a_program_that_imports_triton(check):
    before = list(sys.path), os.environ.get("PYTHONPATH")
    text = program(more=" + 8").replace("@tw.", "import triton\n@triton.", 1)
    status, output = check(text)
    assert status == 1
    assert "out-of-bounds read" in output
    assert before == (sys.path, os.environ.get("PYTHONPATH"))


def test_a_clean_program(check):
    status, output = check(program())
    assert status == 0
    assert "launches on an emulated sm_90a: kernel (3)" in output
    assert "no race in shared memory, no access out of bounds" in output
    assert "races between programs in global memory are not looked for" in output
    assert "!" not in output


def test_an_access_out_of_bounds_has_its_line_and_array(check):
    status, output = check(program(more=" + 1"))
    assert status == 1
    lines = output.splitlines()
    at = next(i for i, line in enumerate(lines) if "out of bounds" in line)
    assert "program.py:10:9: out of bounds in kernel: out-of-bounds read of 4 bytes" in lines[at]
    assert "`x_ptr`, which has 1024 bytes" in lines[at]
    source, carets = lines[at + 1 : at + 3]
    marked = source[carets.index("^") : carets.rindex("^") + 1]
    assert marked == "tl.load(x_ptr + i + 1, mask=i < n)"
    assert "seen 3 times" in output
    assert "a launch ends at an access out of bounds" in output


def test_an_assertion_that_fails(check):
    status, output = check(program(start=" - 1", options="(debug=True)"))
    assert status == 1
    assert "kernel (3)" in output
    assert "failed assertion in kernel: negative" in output
    assert 'tl.device_assert(x >= 0, "negative")' in output


def test_scattered_accesses_are_marked(check):
    status, output = check(program(stride=" * 8"))
    assert status == 0
    (marked,) = (line for line in output.splitlines() if line.startswith("!"))
    assert "program.py:12" in marked


def test_options_and_json(check):
    text = program() + "print(kernel.name, sys.argv[1:])\n"
    options = ("--json", "--target", "sm_80", "--num-warps", "2", "--num-stages", "1")
    status, output = check(text, *options, arguments=["a", "--b"])
    assert status == 0
    assert "kernel ['a', '--b']" in check.err
    data = json.loads(output)
    assert data["target"] == "sm_80"
    assert data["launches"] == {"kernel": 3}
    assert data["findings"] == []
    assert {line["at"]["line"] for line in data["lines"]} == {10, 12}
    assert data["program"] == ""


def test_a_program_that_fails_is_shown_from_its_own_frames(check):
    status, output = check("def f():\n    raise ValueError('no')\nf()\n")
    assert status == 1
    assert "no kernel was launched" in output
    assert "ValueError: no" in output
    assert "runpy" not in output
    assert "script.py" not in output


def test_a_program_that_exits(check):
    assert check(program() + "sys.exit()\n")[0] == 0
    assert check(program() + "sys.exit(3)\n")[0] == 1


def test_a_program_that_launches_nothing(check):
    status, output = check("print('no kernel')\n")
    assert status == 2
    assert "no kernel was launched on the emulated GPU" in output
    assert "blocks" not in output


def test_launches_in_an_emulation_of_the_programs_own(check):
    text = program().replace("for _", "with tw.emulate('sm_80'):\n  for _", 1)
    status, output = check(text)
    assert status == 2
    assert "of the program's own" in output
    assert output.endswith("report: kernel (3)\n")
    status, output = check(f"{text}\nkernel[(2,)](x, out, 256, BLOCK=256)\n", "--json")
    assert status == 0
    data = json.loads(output)
    assert (data["launches"], data["elsewhere"]) == ({"kernel": 1}, {"kernel": 3})


def test_an_option_behind_the_file_is_pointed_out(tmp_path, capsys):
    path = tmp_path / "program.py"
    path.write_text("import sys; print(sys.argv[1:])\n")
    main(["check", str(path), "--target=sm_80", "--mine"])
    said = capsys.readouterr()
    assert "['--target=sm_80', '--mine']" in said.out
    assert "--target=sm_80 comes after" in said.err
    assert "--mine comes" not in said.err


def test_only_the_file_is_required(capsys):
    with pytest.raises(SystemExit):
        main(["check"])
    assert capsys.readouterr().err.endswith("the following arguments are required: file\n")


def test_an_unknown_target_is_refused(tmp_path, capsys):
    path = tmp_path / "program.py"
    path.write_text("")
    with pytest.raises(SystemExit):
        main(["check", "--target", "sm_42", str(path)])
    assert "no architecture 'sm_42'" in capsys.readouterr().err


def test_a_reader_that_goes_away(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "check", path],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_report_alone_is_on_stdout(tmp_path):
    path = tmp_path / "program.py"
    prints = "print('one')\nprint('two', file=sys.__stdout__)\nimport os; os.system('echo three')\n"
    path.write_text(HEAD + program() + prints)
    command = [sys.executable, "-m", "tilewright", "check", "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["launches"] == {"kernel": 3}
    assert sorted(done.stderr.split()) == ["one", "three", "two"]


def test_there_must_be_a_program(capsys):
    for arguments in (["nowhere.py"], ["folder/nowhere"], ["-m", "nowhere"]):
        assert main(arguments) == (1 if "-m" in arguments else 2)
        assert "nowhere" in (said := capsys.readouterr().err)
        assert len(said.splitlines()) == 1


def test_there_must_be_a_file(capsys):
    assert main(["check", "nowhere.py"]) == 2
    assert "there is no file nowhere.py" in capsys.readouterr().err


def test_the_module_runs(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(HEAD + program(more=" + 1"))
    command = [sys.executable, "-m", "tilewright", "check", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "out of bounds in kernel" in done.stdout

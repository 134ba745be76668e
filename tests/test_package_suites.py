"""The runner of packages' test suites: what it reads from reports, and which files it runs."""

from argparse import Namespace

import pytest

from tools import package_suites

SUITE = package_suites.Suite(
    "package",
    "1.0",
    ("tests/test_*.py",),
    absent={"tests/test_gpu*": "needs a GPU", "tests/test_sum.py::test_wide[8": "less exact"},
)
PASSED = '<testcase classname="tests.test_sum" name="test_narrow" time="0.5"/>'
SKIPPED = (
    '<testcase classname="tests.test_sum" name="test_bf16"><skipped message="no GPU"/></testcase>'
)
FAILED = (
    '<testcase classname="tests.test_sum" name="test_wide">'
    '<failure message="assert 1 == 2&#10;more"/></testcase>'
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".reports" / "all").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    for name in ("test_sum.py", "test_gpu_sum.py", "helpers.py"):
        (tmp_path / "tests" / name).touch()
    return tmp_path


def report(folder, *cases):
    path = folder / ".reports" / "all" / "tests-test_sum.py.xml"
    inner = "".join(cases)
    path.write_text(f'<testsuites><testsuite time="7.5">{inner}</testsuite></testsuites>')
    return path


def options(**changes):
    return Namespace(**{"most": None, "resume": True, "processes": 1, "seconds": 60} | changes)


def test_counts_of_a_report(folder):
    outcome = package_suites.read_report("file", report(folder, PASSED, PASSED, SKIPPED, FAILED))
    assert (outcome.passed, outcome.seconds) == (2, 7.5)
    assert outcome.skipped == ("no GPU",)
    assert outcome.failures == (("tests.test_sum::test_wide", "assert 1 == 2"),)


def test_files_that_are_absent_are_not_run(folder):
    assert package_suites.test_files(SUITE, folder, []) == ["tests/test_sum.py"]
    assert package_suites.test_files(SUITE, folder, ["product"]) == []


def test_tests_that_are_absent_are_left_out(folder):
    command = package_suites.command_for(
        SUITE, "tests/test_sum.py", folder / "report.xml", options(processes=4, most=9)
    )
    assert "--deselect=tests/test_sum.py::test_wide[8" in command
    assert command[command.index("-n") + 1] == "4"
    assert "--most=9" in command


@pytest.mark.parametrize(
    ("cases", "changes", "runs"),
    [
        ((PASSED, SKIPPED), {}, False),
        ((PASSED, FAILED), {}, True),
        ((PASSED,), {"resume": False}, True),
        ((PASSED,), {"most": 3}, True),  # the report is of all tests
    ],
)
def test_files_that_have_passed_are_not_run_again(folder, monkeypatch, cases, changes, runs):
    report(folder, *cases)
    started = []
    monkeypatch.setattr(package_suites.subprocess, "run", lambda *a, **_: started.append(a))
    outcome = package_suites.run_file(SUITE, folder, "tests/test_sum.py", options(**changes))
    assert bool(started) == runs
    assert bool(outcome.failures) == runs  # what was started has written no report

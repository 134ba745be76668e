"""Run the test suites of published packages of Triton kernels, unmodified, on the CPU target.

`make test-packages` makes the environment and calls this. Each source distribution is fetched from
PyPI and unpacked; each of its test files runs in a process of its own, by
`python -m tilewright -m pytest`, so that `triton` is Tilewright. Nothing of a package is changed.
What its host code insists on is in `tests/packages/on_cpu.py`, and what is left out is listed here
with the reason. The exit status is 0 if all that should pass does.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = ROOT / "tests" / "packages"
LISTED_FAILURES = 20
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TILEWRIGHT_NUM_THREADS")


@dataclass(frozen=True)
class Suite:
    """A package's tests: its name on PyPI, its version, and which files (patterns) are tests.

    `absent` has files (patterns) and tests (how names begin) that are not run, with the reasons.
    """

    package: str
    version: str
    files: tuple[str, ...]
    absent: Mapping[str, str] = field(default_factory=dict)


SUITES = {
    "conch": Suite("conch-triton-kernels", "1.3", ("tests/*_test.py",)),
    "liger": Suite(
        "liger-kernel",
        "0.8.5",
        ("test/**/test_*.py",),
        absent={
            "test/convergence/*": "needs the package datasets, and models from the network",
            "test/cute/*": "needs the package nvidia-cutlass-dsl, and CUDA",
            "test/cutedsl/*": "needs the package nvidia-cutlass-dsl, and CUDA",
            "test/cutile/*": "needs the package cuda-tile, and CUDA",
            "test/megatron/*": "needs the package megatron, and CUDA",
            "test/transformers/test_cross_entropy.py::"
            "test_correctness_with_z_loss_with_other_params_once[0.2--42-sum": "gradients to 1e-6: "
            "PyTorch's on the CPU are 3e-5 off the exact ones, the kernel's 1e-6",
            "test/transformers/test_cross_entropy.py::test_correctness_not_last_layer"
            "_with_other_params[1.0-dtype1-1e-08-1e-05-sum": "gradients to 1e-5: PyTorch's on "
            "the CPU are up to 7e-5 off the exact ones, the kernel's 1e-6",
            "test/transformers/test_cross_entropy.py::test_correctness_with_forward_only"
            "[dtype1-1.0-0.01-0.01-mean-2-4096-32000--100]": "the mean of 8192 losses of 10.9: in "
            "fp16 PyTorch's on the CPU is infinite, for so is the sum",
            "test/transformers/test_group_norm.py::test_liger_group_norm"
            "[dtype0-0.0001-0.0001-16-48-12-8192]": "sums of 131072 numbers, to 1e-4: PyTorch's on "
            "the CPU are 7e-4 off the exact ones, the kernel's 2e-4",
            "test/transformers/test_layer_norm.py::test_liger_layer_norm[dtype1": "PyTorch's bf16 "
            "gradients of weights on the CPU are up to 4 times the tolerance off the exact ones",
        },
    ),
}


# What is only unpacked, for the single kernels in tests/packages: building these asks for CUDA.
SOURCES = (
    Suite("mamba-ssm", "2.3.2.post1", ()),
    Suite("causal-conv1d", "1.7.0", ()),
    Suite("vllm", "0.33.0", ()),
)
WITHOUT_CUDA = {
    "MAMBA_SKIP_CUDA_BUILD": "TRUE",
    "CAUSAL_CONV1D_SKIP_CUDA_BUILD": "TRUE",
    "VLLM_TARGET_DEVICE": "empty",
    "VLLM_VERSION_OVERRIDE": "0.33.0",
}


@dataclass(frozen=True)
class Outcome:
    """How the tests of one file went: `skipped` has reasons, `failures` names and messages."""

    file: str
    passed: int = 0
    skipped: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        counts = (
            f"{self.passed:6} passed {len(self.failures):5} failed {len(self.skipped):5} skipped"
        )
        return f"{counts} {self.seconds:7.0f} s  {self.file}"


def fetch(suite: Suite, directory: Path) -> Path:
    """Return the folder of a source distribution, fetched and unpacked if it is not there yet."""
    found = sorted(directory.glob(f"{suite.package.replace('-', '_')}-{suite.version}"))
    if not found:
        directory.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        only = ["--no-deps", "--no-binary", suite.package, "--dest", str(directory)]
        # Some ask PyTorch for its version: what is installed here, not what they would choose.
        only += ["--no-build-isolation"] if suite in SOURCES else []
        command = [*pip, *only, f"{suite.package}=={suite.version}"]
        subprocess.run(command, check=True, env={**os.environ, **WITHOUT_CUDA})
        (archive,) = directory.glob(f"{suite.package.replace('-', '_')}-{suite.version}.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        found = [directory / archive.name.removesuffix(".tar.gz")]
    return found[0]


def test_files(suite: Suite, folder: Path, wanted: Sequence[str]) -> list[str]:
    """The test files of a suite that are run, those that `wanted` (parts of names) asks for."""
    names = sorted(
        {str(path.relative_to(folder)) for pattern in suite.files for path in folder.glob(pattern)}
    )
    return [
        name
        for name in names
        if not any(fnmatch.fnmatch(name, pattern) for pattern in suite.absent)
        and (not wanted or any(part in name for part in wanted))
    ]


def run_file(suite: Suite, folder: Path, file: str, options: argparse.Namespace) -> Outcome:
    """Run the tests of one file, or take the report of an earlier run that had no failures."""
    reports = folder.resolve() / ".reports" / str(options.most or "all")
    report = reports / f"{file.replace('/', '-')}.xml"
    if options.resume and report.exists() and not (earlier := read_report(file, report)).failures:
        return earlier
    reports.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    started, output = time.monotonic(), report.with_suffix(".txt")
    try:
        with output.open("w") as text:
            subprocess.run(
                command_for(suite, file, report, options), cwd=folder, env=settings_for(options),
                timeout=options.seconds, check=False, stdout=text, stderr=subprocess.STDOUT,
            )  # fmt: skip
        trouble = f"no report: see {output}"
    except subprocess.TimeoutExpired:
        trouble = f"not done after {options.seconds:.0f} s"
    if not report.exists():
        return Outcome(file, failures=((file, trouble),), seconds=time.monotonic() - started)
    return read_report(file, report)


def command_for(suite: Suite, file: str, report: Path, options: argparse.Namespace) -> list[str]:
    """The command that runs the tests of one file and writes the report."""
    processes = options.processes if options.processes > 1 else 0
    arguments = ["-q", "-p", "on_cpu", "-p", "no:cacheprovider", "-n", str(processes)]
    arguments += [f"--junitxml={report}", file]
    arguments += [f"--deselect={name}" for name in suite.absent if name.startswith(f"{file}::")]
    arguments += [f"--most={options.most}"] if options.most else []
    return [sys.executable, "-m", "tilewright", "-m", "pytest", *arguments]


def settings_for(options: argparse.Namespace) -> dict[str, str]:
    """The environment of a run: no GPU, and one thread each for several processes of a file."""
    path = os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH", "")]))
    threads = dict.fromkeys(THREADS, "1") if options.processes > 1 else {}
    return {**threads, **os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}


def read_report(file: str, report: Path) -> Outcome:
    """Count what a report of pytest (JUnit's format) says."""
    root = ET.parse(report).getroot()  # noqa: S314 - pytest has written it
    cases = list(root.iter("testcase"))
    failures = tuple(failures_of(cases))
    marks = [mark for case in cases if (mark := case.find("skipped")) is not None]
    skipped = tuple((mark.get("message") or "no reason") for mark in marks)
    failed = {name for name, _ in failures}
    seconds = sum(float(part.get("time") or 0) for part in root.iter("testsuite"))
    return Outcome(file, len(cases) - len(skipped) - len(failed), skipped, failures, seconds)


def failures_of(cases: Sequence[ET.Element]) -> Iterator[tuple[str, str]]:
    """The names of the tests that failed, each with the first line of what went wrong."""
    for case in cases:
        for kind in ("failure", "error"):
            found = case.find(kind)
            if found is not None:
                lines = (found.get("message") or found.text or "").strip().splitlines()
                yield f"{case.get('classname')}::{case.get('name')}", lines[0] if lines else kind
                break


def run_suite(suite: Suite, options: argparse.Namespace) -> bool:
    """Run a suite, print a table, and return whether nothing failed."""
    folder = fetch(suite, options.directory)
    files = test_files(suite, folder, options.only)
    with ThreadPoolExecutor(options.jobs) as threads:
        started = [threads.submit(run_file, suite, folder, file, options) for file in files]
        outcomes = []
        for future in started:
            outcomes.append(future.result())
            print(outcomes[-1], flush=True)
    for outcome in outcomes:
        for name, message in outcome.failures[:LISTED_FAILURES]:
            print(f"FAILED {name}: {message[:200]}")
    reasons = collections.Counter(reason for outcome in outcomes for reason in outcome.skipped)
    for reason, count in reasons.most_common():
        print(f"skipped {count}: {reason[:200]}")
    for pattern, reason in suite.absent.items():
        print(f"not run: {pattern}: {reason}")
    passing = sum(not outcome.failures for outcome in outcomes)
    passed = sum(outcome.passed for outcome in outcomes)
    skipped = sum(len(outcome.skipped) for outcome in outcomes)
    failed = sum(len(outcome.failures) for outcome in outcomes)
    print(
        f"{suite.package} {suite.version}: {passing} of {len(files)} files pass; "
        f"{passed} tests passed, {failed} failed, {skipped} skipped"
    )
    return failed == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites that the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="default: all")
    parser.add_argument("--directory", type=Path, required=True, help="where they are unpacked")
    parser.add_argument("--fetch", action="store_true", help="only fetch and unpack")
    parser.add_argument("--only", action="append", default=[], help="files with this in their name")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time")
    parser.add_argument("--processes", type=int, default=1, help="processes at a time for a file")
    parser.add_argument("--resume", action="store_true", help="leave out files that have passed")
    parser.add_argument("--most", type=int, help="of each file so many tests, spread evenly")
    parser.add_argument("--seconds", type=float, default=3600, help="the most for one file")
    options = parser.parse_args(arguments)
    if options.fetch:
        for suite in (*SUITES.values(), *SOURCES):
            fetch(suite, options.directory)
        return 0
    good = [run_suite(SUITES[name], options) for name in options.suites or SUITES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

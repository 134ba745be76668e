"""Processes that check kernels: a kernel that ends the process ends one of these.

A worker reads a JSON object a line and answers with one. It is asked for a kernel by its seed, or
given the text of one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.fuzz.differential import COMPILED, CPU, Outcome

__all__ = ["ROOT", "Worker"]

ROOT = Path(__file__).resolve().parent.parent.parent


class Worker:
    """One process, started again when it ends. Use as a context manager.

    `on` says what kernels run on, as for `check`. After a fault on a GPU, which leaves none of the
    process's memory there usable, it is started again too.
    """

    def __init__(self, *, on: Sequence[str] = COMPILED, seconds: float = 180.0) -> None:
        self._on = tuple(on)
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "stderr"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._folder.cleanup()

    def check_seed(self, seed: int) -> tuple[str, Outcome]:
        """Generate and check a kernel; return its text, or that of its variant at fault."""
        answer, outcome = self._ask({"seed": seed})
        if not answer:
            text, _ = self._ask({"generate": seed})
            return text.get("source", ""), outcome
        return answer["source"], outcome

    def check(self, source: str, *, stages: bool = False) -> Outcome:
        """Check the text of a kernel."""
        return self._ask({"source": source, "stages": stages})[1]

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], Outcome]:
        process = self._running()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"on": self._on, **request}) + "\n")
        process.stdin.flush()
        line = self._line(process)
        if line is None:
            self._stop()
            return {}, Outcome("hangs", f"no answer within {self._seconds:.0f} s")
        if not line:
            code = process.wait()
            self._stop()
            log = self._log.read_text(errors="replace").strip().splitlines()
            return {}, Outcome(f"ends the process ({code})", "\n".join(log[:25]))
        answer = json.loads(line)
        if answer["kind"].startswith("GPU fails"):
            self._stop()
        return answer, Outcome(answer["kind"], answer["detail"])

    def _line(self, process: subprocess.Popen[str]) -> str | None:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if selector.select(self._seconds) else None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            settings = {k: v for k, v in os.environ.items() if not k.startswith("TILEWRIGHT_")}
            settings |= {
                "TILEWRIGHT_CACHE_DIR": str(Path(self._folder.name) / "cache"),
                "TILEWRIGHT_NUM_THREADS": "2",
                "OPENBLAS_NUM_THREADS": "1",  # NumPy's
                "PYTHONPATH": os.pathsep.join(
                    filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
                ),
            }
            with self._log.open("w") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.workers"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    text=True, env=settings, cwd=ROOT,
                )  # fmt: skip
        return self._process

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process = None


def _answer(request: dict[str, Any]) -> dict[str, str]:
    from tests.fuzz.differential import Outcome, check
    from tests.fuzz.generate import generate
    from tests.fuzz.variants import vary

    on = request["on"]
    portable = set(on) != {CPU}
    if "generate" in request:
        source = generate(request["generate"], portable=portable)
        return {"source": source, "kind": "agrees", "detail": ""}
    if "source" in request:
        outcome = check(request["source"], on=on, stages=request["stages"])
        return {"source": request["source"], "kind": outcome.kind, "detail": outcome.detail}
    source = generate(request["seed"], portable=portable)
    outcome = check(source, on=on)
    turn, rest = divmod(request["seed"], 4)
    if not outcome.is_fault and rest == 0:
        varied = vary(source, request["seed"])
        other = check(varied, on=[on[turn % len(on)]], like=source)
        if other.is_fault:
            source, outcome = varied, Outcome(f"variant: {other.kind}", other.detail)
    return {"source": source, "kind": outcome.kind, "detail": outcome.detail}


def _serve() -> None:
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # whatever a kernel prints does not reach the answers
        for line in sys.stdin:
            answers.write(json.dumps(_answer(json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    _serve()

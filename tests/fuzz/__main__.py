"""`python -m tests.fuzz --count N --seed S`: random kernels, run by every executor and compared."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.fuzz.differential import COMPILED, EXECUTORS, GPU, Outcome
from tests.fuzz.shrink import shrink
from tests.fuzz.workers import Worker
from tilewright.errors import TilewrightError
from tilewright.runtime import cuda
from tilewright.runtime.host import host


def main() -> int:
    """Run the fuzzer; the exit status is 1 if a kernel failed."""
    options = _options()
    started = time.monotonic()
    kinds: Counter[str] = Counter()
    workers: SimpleQueue[Worker] = SimpleQueue()
    pool = [Worker(on=options.on) for _ in range(options.jobs)]
    for worker in pool:
        workers.put(worker)
    try:
        for number, (seed, source, outcome) in enumerate(_outcomes(options, workers), 1):
            kinds[outcome.kind] += 1
            if outcome.is_fault:
                _report(seed, source, outcome, options)
            if number % 10 == 0 or number == options.count:
                _show_progress(number, options.count, kinds, started)
    finally:
        for worker in pool:
            worker.__exit__()
    faults = {kind: number for kind, number in kinds.items() if kind != "agrees"}
    executors = " = ".join(["eager mode", "interpreter", *options.on])
    print(
        f"\n{kinds['agrees']} of {kinds.total()} kernels agree ({executors}), "
        f"{time.monotonic() - started:.0f} s",
        faults or "",
    )
    return int(kinds["agrees"] != kinds.total())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many kernels")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first kernel; the next is one more"
    )
    parser.add_argument("--jobs", type=int, default=host().cores, help="processes")
    parser.add_argument(
        "--on",
        type=_executors,
        default=COMPILED,
        help="what runs the kernels: cpu, gpu, and architectures to emulate "
        f"(default: {','.join(COMPILED)})",
    )
    parser.add_argument(
        "--gpu",
        dest="on",
        action="store_const",
        const=(GPU,),
        help="the same as --on gpu",
    )
    parser.add_argument(
        "--no-shrink", action="store_true", help="print failing kernels as they are"
    )
    parser.add_argument("--keep", type=Path, help="folder for the texts of failing kernels")
    parser.add_argument(
        "files", nargs="*", type=Path, help="texts of kernels to check in place of random ones"
    )
    options = parser.parse_args()
    if GPU in options.on:
        try:
            cuda.device(0)
        except TilewrightError as error:
            parser.error(str(error))
    return options


def _executors(names: str) -> tuple[str, ...]:
    chosen = tuple(names.split(","))
    for name in chosen:
        if name not in EXECUTORS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(EXECUTORS)}")
    return chosen


def _outcomes(
    options: argparse.Namespace, workers: SimpleQueue[Worker]
) -> Iterator[tuple[int, str, Outcome]]:
    def run(seed: int) -> tuple[int, str, Outcome]:
        worker = workers.get()
        try:
            if options.files:
                text = options.files[seed].read_text(encoding="utf-8")
                return seed, text, worker.check(text)
            return (seed, *worker.check_seed(seed))
        finally:
            workers.put(worker)

    if options.files:
        options.count, options.seed = len(options.files), 0
    with ThreadPoolExecutor(options.jobs) as threads:
        yield from threads.map(run, range(options.seed, options.seed + options.count))


def _report(seed: int, source: str, outcome: Outcome, options: argparse.Namespace) -> None:
    print(f"\n\nseed {seed}: {outcome.kind}\n{outcome.detail}\n")
    if not options.no_shrink and not outcome.kind.startswith("variant"):
        with Worker(on=options.on, seconds=20) as worker:
            source = shrink(source, lambda text: worker.check(text).kind == outcome.kind)
            again = worker.check(source, stages=True)
        print(f"made smaller: {again.kind}: {again.detail}\n")
    print(source)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"seed_{seed}.py").write_text(source, encoding="utf-8")


def _show_progress(number: int, count: int, kinds: Counter[str], started: float) -> None:
    seconds = time.monotonic() - started
    faults = number - kinds["agrees"]
    text = f"{number}/{count} kernels, {faults} failed, {seconds:.0f} s"
    print(
        f"\r{text}" if sys.stderr.isatty() else text,
        end="" if sys.stderr.isatty() else "\n",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())

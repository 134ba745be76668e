"""The list of passes, in order and with the reasons for the order, and the driver that runs them.

To add a pass, write `passes/<name>.py` with one function from `Function` to `Function` and name it
here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from tilewright import env
from tilewright.errors import InternalError, TilewrightError, Unsupported
from tilewright.ir.core import Function, Op
from tilewright.ir.verifier import verify
from tilewright.ops.descriptor import DescriptorOp
from tilewright.ops.matmul import InputPrecision
from tilewright.passes.choose_precision import choose_precision
from tilewright.passes.dump import Dump, Report
from tilewright.passes.eliminate_duplicates import eliminate_duplicates
from tilewright.passes.expand_assembly import expand_assembly
from tilewright.passes.expand_descriptors import expand_descriptors
from tilewright.passes.expand_math import expand_math, expand_math_for_gpu
from tilewright.passes.fold_dot_accumulator import fold_dot_accumulator
from tilewright.passes.fuse_multiply_adds import fuse_multiply_adds
from tilewright.passes.hoist_invariants import hoist_invariants
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.legalize_casts import legalize_casts, legalize_casts_for_gpu
from tilewright.passes.legalize_narrow_floats import legalize_narrow_floats
from tilewright.passes.multiply_wide import multiply_wide
from tilewright.passes.remove_dead import remove_dead
from tilewright.passes.scalarize_inductions import scalarize_inductions
from tilewright.passes.simplify import simplify
from tilewright.passes.step import Observer, Step
from tilewright.passes.widen_products import widen_products
from tilewright.target import NvidiaTarget

__all__ = [
    "PASSES", "PREPARE_FOR_CPU", "PREPARE_FOR_GPU", "Pass", "optimize", "prepare_for_cpu",
    "prepare_for_gpu", "run_passes",
]  # fmt: skip


@dataclass(frozen=True)
class Pass:
    """A rewrite, what must have run before it and why, and whether it may be left out."""

    name: str
    function: Callable[[Function], Function]
    after: Mapping[str, str] = field(default_factory=dict)
    optional: bool = True


PASSES: tuple[Pass, ...] = (
    Pass("inline_calls", inline_calls, optional=False),
    Pass(
        "simplify",
        simplify,
        after={"inline_calls": "constant arguments decide branches of the callee"},
    ),
    Pass(
        "eliminate_duplicates",
        eliminate_duplicates,
        after={"simplify": "equal values are written alike only in their simplest form"},
    ),
    Pass(
        "remove_dead",
        remove_dead,
        after={
            "simplify": "rules leave behind what they replaced",
            "eliminate_duplicates": "of loops and branches, merged values leave unused results",
        },
    ),
    Pass(
        "hoist_invariants",
        hoist_invariants,
        after={
            "remove_dead": "a dead op would move and take what it needs along",
            "simplify": "a value carried without change does not look invariant",
        },
    ),
)
"""What every target runs."""


def _preparation(
    expand: Callable[[Function], Function],
    legalize: Callable[[Function], Function],
    *,
    early: Sequence[Pass] = (),
    late: Sequence[Pass] = (),
) -> tuple[Pass, ...]:
    return (
        Pass("expand_descriptors", expand_descriptors, optional=False),
        Pass("scalarize_inductions", scalarize_inductions),
        Pass("fold_dot_accumulator", fold_dot_accumulator),
        *early,
        Pass(
            "widen_products",
            widen_products,
            after={"fold_dot_accumulator": "a widened product is rounded before it is added"},
            optional=False,
        ),
        Pass("legalize_narrow_floats", legalize_narrow_floats, optional=False),
        Pass(
            "expand_math",
            expand,
            after={"legalize_narrow_floats": "functions are expanded for fp32 and fp64 only"},
            optional=False,
        ),
        Pass(
            "legalize_casts",
            legalize,
            after={
                "widen_products": "what is widened is cast",
                "legalize_narrow_floats": "narrow arithmetic becomes casts",
                "expand_math": "expansions use casts",
            },
            optional=False,
        ),
        *late,
        Pass(
            "simplify_legal",
            simplify,
            after={"legalize_casts": "constants are folded through the expansions"},
        ),
        Pass("eliminate_duplicates_legal", eliminate_duplicates),
        Pass("remove_dead_legal", remove_dead),
    )


_EXPAND_ASSEMBLY = Pass("expand_assembly", expand_assembly, optional=False)
PREPARE_FOR_CPU = _preparation(expand_math, legalize_casts, early=[_EXPAND_ASSEMBLY])
"""What the CPU target runs afterwards: ops that it does not generate become others."""

_FUSE = Pass(
    "fuse_multiply_adds",
    fuse_multiply_adds,
    after={"fold_dot_accumulator": "a scaled product is no accumulator any more"},
)
_CHOOSE_PRECISION = Pass("choose_precision", choose_precision, optional=False)
_MULTIPLY_WIDE = Pass(
    "multiply_wide",
    multiply_wide,
    after={"legalize_casts": "products of narrow integers are products of u32 by then"},
)
PREPARE_FOR_GPU = _preparation(
    expand_math_for_gpu,
    legalize_casts_for_gpu,
    early=[_FUSE, _CHOOSE_PRECISION],
    late=[_MULTIPLY_WIDE],
)
"""What GPU targets run afterwards; some passes by what the target has instructions for."""


def _check_order(passes: Sequence[Pass]) -> None:
    earlier: set[str] = set()
    for step in passes:
        missing = [f"{name} ({why})" for name, why in step.after.items() if name not in earlier]
        if missing or step.name in earlier:
            message = f"pass {step.name} must run once, after {', '.join(missing) or 'nothing'}"
            raise InternalError(message)
        earlier.add(step.name)


_check_order(PASSES)
_check_order(PASSES + PREPARE_FOR_CPU)
_check_order(PASSES + PREPARE_FOR_GPU)


def optimize(function: Function, *, observers: Sequence[Observer] = ()) -> Function:
    """Run the passes that every target shares; `observers` see each step."""
    return run_passes(function, PASSES, "optimize", observers)


def prepare_for_cpu(function: Function, *, observers: Sequence[Observer] = ()) -> Function:
    """Run the passes that lead from an optimized function to what the CPU target generates."""
    return run_passes(function, PREPARE_FOR_CPU, "prepare_for_cpu", observers)


def prepare_for_gpu(
    function: Function,
    target: NvidiaTarget,
    *,
    fuses: bool = True,
    precision: InputPrecision = InputPrecision.TF32,
    keeps: Callable[[DescriptorOp], bool] | None = None,
    observers: Sequence[Observer] = (),
) -> Function:
    """Run the passes that lead from an optimized function to what a GPU target generates.

    `fuses` says whether a product and a sum may be rounded once, `precision` how precise products
    are that do not say it, `keeps` which ops on tensor
    descriptors the target has instructions for.
    """
    made = {
        widen_products: partial(widen_products, types=target.product_types),
        expand_descriptors: partial(expand_descriptors, keeps=keeps),
        choose_precision: partial(choose_precision, precision=precision),
        legalize_casts_for_gpu: partial(legalize_casts_for_gpu, types=target.product_types),
    }
    passes = [
        replace(step, function=made.get(step.function, step.function))
        for step in PREPARE_FOR_GPU
        if fuses or step is not _FUSE
    ]
    return run_passes(function, passes, "prepare_for_gpu", observers)


def run_passes(
    function: Function, passes: Sequence[Pass], stage: str, observers: Sequence[Observer] = ()
) -> Function:
    """Run `passes` in order; a fault in one becomes an `InternalError` that names it."""
    watching = [*observers, *_observers_from_environment(function, stage)]
    disabled = env.disabled_passes()
    for number, step in enumerate(passes, 1):
        if step.optional and step.name in disabled:
            continue
        start = time.perf_counter()
        result = _run(step, function)
        seconds = time.perf_counter() - start
        for observe in watching:
            observe(Step(stage, number, step.name, function, result, seconds))
        function = result
    return function


def _observers_from_environment(function: Function, stage: str) -> list[Observer]:
    observers: list[Observer] = []
    directory = env.dump_directory()
    if directory is not None:
        observers.append(Dump(directory, function, stage))
    if env.debug_level() >= 2:
        observers.append(Report(show_ir=env.debug_level() >= 4))
    if env.verify():
        observers.append(_verify)
    return observers


def _verify(step: Step) -> None:
    try:
        verify(step.after)
    except InternalError as error:
        message = f"after pass {step.name}: {error.message}"
        raise InternalError(message, location=error.location) from error


def _run(step: Pass, function: Function) -> Function:
    try:
        return step.function(function)
    except (Unsupported, InternalError):
        raise  # says already what is wrong, and where
    except Exception as error:
        op = _op_at_work(error.__traceback__)
        where = f" at {op.op_name}" if op is not None else ""
        reason = error.message if isinstance(error, TilewrightError) else str(error)
        message = (
            f"pass {step.name} failed on {function.name}{where}: {type(error).__name__}: {reason}"
        )
        location = function.location if op is None else op.location
        hint = f"leave the pass out with TILEWRIGHT_DISABLE={step.name}" if step.optional else ""
        raise InternalError(message, location=location, hint=hint) from error


def _op_at_work(traceback: TracebackType | None) -> Op | None:
    """Return the op that the innermost frame with one was working on.

    The walks of all passes hold it in a variable, which saves each of them from saying so.
    """
    found = None
    while traceback is not None:
        for value in traceback.tb_frame.f_locals.values():
            if isinstance(value, Op):
                found = value
                break
        traceback = traceback.tb_next
    return found

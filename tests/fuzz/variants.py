"""Rewrites a kernel into another one that means the same."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Mapping

from tests.fuzz.rewrites import REWRITES, blocks_of, function_of, launch_table

__all__ = ["vary"]

_EFFECTS = {"store", "device_print", "device_assert"}


def vary(source: str, seed: int) -> str:
    """Put in branches that are never taken, exchange neighbours that are independent, and more."""
    rng = random.Random(seed)
    module = ast.parse(source)
    kernel = function_of(module)
    captured = _captured(kernel)
    for _ in range(8):
        _exchange(rng.choice(blocks_of(kernel)), captured, rng)
    for rewrite in rng.sample(REWRITES, rng.randint(2, 5)):
        rewrite(module, rng)
        ast.fix_missing_locations(module)
    for _ in range(rng.randint(1, 3)):
        _insert_dead_branch(rng.choice(blocks_of(kernel)), kernel, rng)
    _add_parameter(module, kernel)
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def _captured(kernel: ast.FunctionDef) -> dict[str, set[str]]:
    """What the functions inside a kernel read of the names around them, when they are called."""
    found = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.FunctionDef) and node is not kernel:
            name: str | None = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            name = getattr(node.targets[0], "id", None)
        else:
            continue
        if name is not None:
            found[name] = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found


def _exchange(block: list[ast.stmt], captured: Mapping[str, set[str]], rng: random.Random) -> None:
    places = [
        i for i in range(len(block) - 1) if _are_independent(block[i], block[i + 1], captured)
    ]
    if places:
        i = rng.choice(places)
        block[i], block[i + 1] = block[i + 1], block[i]


def _are_independent(first: ast.stmt, second: ast.stmt, captured: Mapping[str, set[str]]) -> bool:
    if not all(isinstance(s, ast.Assign | ast.AugAssign | ast.Expr) for s in (first, second)):
        return False
    (reads_1, writes_1), (reads_2, writes_2) = (_names(s, captured) for s in (first, second))
    if writes_1 & (reads_2 | writes_2) or writes_2 & reads_1:
        return False
    memory = [_memory(first), _memory(second)]
    return "write" not in memory or None in memory


def _names(statement: ast.stmt, captured: Mapping[str, set[str]]) -> tuple[set[str], set[str]]:
    names = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
    written = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
    read = read.union(*(captured.get(name, set()) for name in read))
    return (read | written if isinstance(statement, ast.AugAssign) else read), written


def _memory(statement: ast.stmt) -> str | None:
    called = {n.attr for n in ast.walk(statement) if isinstance(n, ast.Attribute)}
    if called & _EFFECTS or any(name.startswith("atomic_") for name in called):
        return "write"
    return "read" if "load" in called else None


def _insert_dead_branch(block: list[ast.stmt], kernel: ast.FunctionDef, rng: random.Random) -> None:
    stored = rng.choice([a.arg for a in kernel.args.args if re.fullmatch(r"(y|out)\d+", a.arg)])
    bodies = [f"tl.store({stored} + 1, 1)", f"tl.store({stored} + tl.arange(0, 8), 7)"]
    assigned = [
        s for s in block if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
    ]
    place = rng.randrange(len(block) + 1)
    before = [s.targets[0].id for s in assigned if s in block[:place]]  # type: ignore[attr-defined]
    if before:
        name = rng.choice(before)
        bodies.append(f"{name} = {name}")
    if block is kernel.body:
        bodies.append("return")
    branch = ast.parse(f"if never < 0:\n    {rng.choice(bodies)}").body[0]
    block.insert(place, branch)


def _add_parameter(module: ast.Module, kernel: ast.FunctionDef) -> None:
    kernel.args.args.append(ast.arg("never"))
    scalars = launch_table(module, "SCALARS")
    scalars.keys.append(ast.Constant("never"))
    scalars.values.append(ast.Constant(5))

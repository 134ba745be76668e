"""Rewrites a kernel into another one that means the same."""

from __future__ import annotations

import ast
import random
import re

__all__ = ["vary"]

_EFFECTS = {"store", "device_print", "device_assert"}


def vary(source: str, seed: int) -> str:
    """Put in branches that are never taken, and exchange neighbours that are independent."""
    rng = random.Random(seed)
    module = ast.parse(source)
    kernel = next(n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "kernel")
    for _ in range(8):
        _exchange(rng.choice(_blocks(kernel)), rng)
    for _ in range(rng.randint(1, 3)):
        _insert_dead_branch(rng.choice(_blocks(kernel)), kernel, rng)
    _add_parameter(module, kernel)
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def _blocks(kernel: ast.FunctionDef) -> list[list[ast.stmt]]:
    blocks = [kernel.body]
    for node in ast.walk(kernel):
        if isinstance(node, ast.For | ast.While | ast.If):
            blocks += [block for block in (node.body, node.orelse) if block]
    return blocks


def _exchange(block: list[ast.stmt], rng: random.Random) -> None:
    places = [i for i in range(len(block) - 1) if _are_independent(block[i], block[i + 1])]
    if places:
        i = rng.choice(places)
        block[i], block[i + 1] = block[i + 1], block[i]


def _are_independent(first: ast.stmt, second: ast.stmt) -> bool:
    if not all(isinstance(s, ast.Assign | ast.AugAssign | ast.Expr) for s in (first, second)):
        return False
    (reads_1, writes_1), (reads_2, writes_2) = map(_names, (first, second))
    if writes_1 & (reads_2 | writes_2) or writes_2 & reads_1:
        return False
    memory = [_memory(first), _memory(second)]
    return "write" not in memory or None in memory


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    names = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
    written = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
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
    for node in module.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SCALARS":
            assert isinstance(node.value, ast.Dict)
            node.value.keys.append(ast.Constant("never"))
            node.value.values.append(ast.Constant(5))

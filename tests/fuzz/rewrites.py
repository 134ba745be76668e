"""Rewrites of a kernel's text that keep its meaning, one at a place that chance picks."""

from __future__ import annotations

import ast
import builtins
import copy
import random
from collections.abc import Callable, Iterator

__all__ = ["REWRITES", "blocks_of", "function_of", "launch_table"]

Rewrite = Callable[[ast.Module, random.Random], None]

# Functions that any tile has as a method.
_METHODS = {
    "sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "associative_scan", "cumsum",
    "cumprod", "sort", "trans", "permute", "flip", "expand_dims", "ravel",
}  # fmt: skip
_COMMUTATIVE = ast.Add | ast.Mult | ast.BitAnd | ast.BitOr | ast.BitXor
_JUMPS = ast.Break | ast.Continue | ast.Return


def function_of(module: ast.Module) -> ast.FunctionDef:
    """The kernel of a module."""
    return next(n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "kernel")


def blocks_of(kernel: ast.FunctionDef) -> list[list[ast.stmt]]:
    """The blocks of statements of a kernel, without those of functions inside it."""
    blocks = [kernel.body]
    for node in ast.walk(kernel):
        if isinstance(node, ast.For | ast.While | ast.If):
            blocks += [block for block in (node.body, node.orelse) if block]
    inner = {
        id(n)
        for f in ast.walk(kernel)
        if isinstance(f, ast.FunctionDef) and f is not kernel
        for n in ast.walk(f)
    }
    return [block for block in blocks if id(block[0]) not in inner]


def launch_table(module: ast.Module, name: str) -> ast.Dict:
    """The dictionary that a module calls so."""
    for node in module.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            assert isinstance(node.value, ast.Dict)
            return node.value
    raise KeyError(name)


def _places(
    module: ast.Module, accept: Callable[[ast.stmt], bool]
) -> Iterator[tuple[list[ast.stmt], int]]:
    for block in blocks_of(function_of(module)):
        for place, statement in enumerate(block):
            if accept(statement):
                yield block, place


def _pick(
    module: ast.Module, rng: random.Random, accept: Callable[[ast.stmt], bool]
) -> tuple[list[ast.stmt], int] | None:
    places = list(_places(module, accept))
    return rng.choice(places) if places else None


def _parsed(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _values(module: ast.Module) -> dict[str, object]:
    return dict(ast.literal_eval(launch_table(module, "SCALARS")))


# ---- control flow


def _split_loop(module: ast.Module, rng: random.Random) -> None:
    """One loop becomes two, over the first part of the range and over the rest."""

    def accept(statement: ast.stmt) -> bool:
        return (
            isinstance(statement, ast.For)
            and isinstance(statement.iter, ast.Call)
            and ast.unparse(statement.iter.func) in {"range", "tl.range", "tl.static_range"}
            and not any(isinstance(n, _JUMPS) for n in ast.walk(statement))
        )

    found = _pick(module, rng, accept)
    if found is None:
        return
    block, place = found
    loop = block[place]
    assert isinstance(loop, ast.For)
    assert isinstance(loop.iter, ast.Call)
    values = _values(module)
    try:
        bounds = [int(eval(ast.unparse(a), {"__builtins__": {}}, values)) for a in loop.iter.args]  # type: ignore[call-overload]
    except NameError:
        return
    indices = range(*bounds)
    middle = ast.Constant(indices.start + indices.step * rng.randint(0, len(indices)))
    first, second = copy.deepcopy(loop), copy.deepcopy(loop)
    assert isinstance(first.iter, ast.Call)
    assert isinstance(second.iter, ast.Call)
    if len(bounds) == 1:
        second.iter.args.insert(0, middle)
        first.iter.args[0] = middle
    else:
        first.iter.args[1] = second.iter.args[0] = middle
    block[place : place + 1] = [first, second]


def _endless(module: ast.Module, rng: random.Random) -> None:
    """`while test` becomes `while True` that breaks."""
    found = _pick(
        module, rng, lambda s: isinstance(s, ast.While) and not isinstance(s.test, ast.Constant)
    )
    if found is None:
        return
    loop = found[0][found[1]]
    assert isinstance(loop, ast.While)
    test = loop.test
    if isinstance(test, ast.Call) and ast.unparse(test.func) == "tl.condition":
        test = test.args[0]
    leave = ast.If(ast.UnaryOp(ast.Not(), test), [ast.Break()], [])
    loop.test, loop.body = ast.Constant(True), [leave, *loop.body]


def _inverted_branch(module: ast.Module, rng: random.Random) -> None:
    """The arms of a branch change places, and its test becomes its opposite."""
    found = _pick(module, rng, lambda s: isinstance(s, ast.If))
    if found is None:
        return
    branch = found[0][found[1]]
    assert isinstance(branch, ast.If)
    branch.test = ast.UnaryOp(ast.Not(), branch.test)
    branch.body, branch.orelse = branch.orelse or [ast.Pass()], branch.body


def _once(module: ast.Module, rng: random.Random) -> None:
    """Some statements go into a branch that is taken, or a loop that runs once, as it turns out."""
    stores = _pick(module, rng, lambda s: isinstance(s, ast.Expr))
    if stores is None:
        return
    block, place = stores
    end = place + 1
    while end < len(block) and isinstance(block[end], ast.Expr) and rng.random() < 0.5:
        end += 1
    header = rng.choice(["if never > 0: pass", "for once in range(never - 4): pass"])
    outer = _parsed(header)
    assert isinstance(outer, ast.If | ast.For)
    outer.body = block[place:end]
    block[place:end] = [outer]


# ---- expressions


def _commuted(module: ast.Module, rng: random.Random) -> None:
    """The operands of a sum, product or bit operation change places."""
    operations = [
        n
        for n in ast.walk(function_of(module))
        if isinstance(n, ast.BinOp)
        and isinstance(n.op, _COMMUTATIVE)
        and not any(isinstance(m, ast.Constant) and isinstance(m.value, str) for m in ast.walk(n))
        and not any("atomic" in ast.unparse(side) for side in (n.left, n.right))
    ]
    for node in rng.sample(operations, min(len(operations), 4)):
        node.left, node.right = node.right, node.left


def _as_method(module: ast.Module, rng: random.Random) -> None:
    """`tl.f(x, ...)` becomes `x.f(...)`."""
    calls = [
        n
        for n in ast.walk(function_of(module))
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and ast.unparse(n.func.value) == "tl"
        and n.func.attr in _METHODS
        and n.args
        and not isinstance(n.args[0], ast.Tuple | ast.Constant)
    ]
    for node in rng.sample(calls, min(len(calls), 2)):
        assert isinstance(node.func, ast.Attribute)
        node.func.value = node.args.pop(0)


def _in_a_function(module: ast.Module, rng: random.Random) -> None:
    """An expression becomes a call of a new function, which is inlined or not."""
    kernel = function_of(module)
    local = {
        n.name if isinstance(n, ast.FunctionDef) else ast.unparse(n.targets[0])
        for n in ast.walk(kernel)
        if (isinstance(n, ast.FunctionDef) and n is not kernel)
        or (isinstance(n, ast.Assign) and isinstance(n.value, ast.Lambda))
    }

    def accept(statement: ast.stmt) -> bool:
        if not isinstance(statement, ast.Assign) or isinstance(statement.value, ast.Lambda):
            return False
        used = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
        inner = (ast.ListComp, ast.Lambda)
        return not used & local and not any(isinstance(n, inner) for n in ast.walk(statement.value))

    found = _pick(module, rng, accept)
    if found is None:
        return
    statement = found[0][found[1]]
    assert isinstance(statement, ast.Assign)
    known = {n.name for n in module.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    known |= {"tl", "tw", *dir(builtins)}
    names = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)} - known
    parameters = ", ".join(sorted(names))
    name = f"apart{sum(isinstance(n, ast.FunctionDef) for n in module.body)}"
    decorator = rng.choice(["@tw.jit", "@tw.jit(noinline=True)"])
    body = ast.unparse(statement.value)
    function = _parsed(f"{decorator}\ndef {name}({parameters}):\n    return {body}")
    module.body.insert(module.body.index(kernel), function)
    statement.value = ast.parse(f"{name}({parameters})", mode="eval").body


# ---- names and parameters


def _renamed(module: ast.Module, rng: random.Random) -> None:
    """Names that a kernel binds get others, in another order of the alphabet."""
    kernel = function_of(module)
    nodes = list(ast.walk(kernel))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.name for n in nodes if isinstance(n, ast.FunctionDef) and n is not kernel}
    order = sorted(bound - {a.arg for a in kernel.args.args})
    rng.shuffle(order)
    names = {old: f"w{rng.choice('az')}{number}" for number, old in enumerate(order)}
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef):
            node.name = names.get(node.name, node.name)


def _other_parameters(module: ast.Module, rng: random.Random) -> None:
    """Numbers of the launch become numbers that are known when the kernel is compiled."""
    kernel, values = function_of(module), _values(module)
    for argument in kernel.args.args:
        old, value = argument.arg, values.get(argument.arg)
        if type(value) is not int or value == 1 or value >= 2**31 or rng.random() < 0.6:
            continue
        if argument.annotation is None:
            argument.arg = f"{old}_constant"
            argument.annotation = ast.parse("tl.constexpr", mode="eval").body
            for key in launch_table(module, "SCALARS").keys:
                if isinstance(key, ast.Constant) and key.value == old:
                    key.value = argument.arg
            kernel.body.insert(0, _parsed(f"{old} = tl.full((), {argument.arg}, tl.int32)"))


def _unspecialized(module: ast.Module, rng: random.Random) -> None:
    """The compiler is told nothing of some arguments' values, or of their divisors."""
    kernel, values = function_of(module), _values(module)
    names = [
        a.arg
        for a in kernel.args.args
        if a.annotation is None and values.get(a.arg) not in {1, None} and rng.random() < 0.4
    ]
    option = rng.choice(["do_not_specialize", "do_not_specialize_on_alignment"])
    kernel.decorator_list = [ast.parse(f"tw.jit({option}={names})", mode="eval").body]


REWRITES: tuple[Rewrite, ...] = (
    _split_loop, _endless, _inverted_branch, _once, _commuted, _as_method, _in_a_function,
    _renamed, _other_parameters, _unspecialized,
)  # fmt: skip

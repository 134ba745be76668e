"""The layer test: a file imports only from layers below its own, and there is no import cycle.

The imports are read from the syntax tree, so nothing is executed, imports under TYPE_CHECKING
count, and so do calls of `import_module` and `__import__`. `LAYERS` is the whole rule; the second
half of the file shows, on small made-up packages, that the checker can fail.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tilewright"

# Lowest first. Names in one row are neighbours: they must not import each other either.
# TOP is the package's own `__init__`, which offers the public names.
TOP = "__init__"
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("locks",),
    ("spelling",),
    ("env",),
    ("target",),
    ("layout",),
    ("ir",),
    ("ops",),
    ("interpreter",),
    ("passes",),
    ("frontend",),
    ("language",),
    ("codegen",),
    ("emulator",),
    ("runtime",),
    ("compiler",),
    ("testing", "tools"),
    (TOP,),
    ("kernels",),
    ("torch", "jax"),
    ("alias",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}

# Downward, yet wrong. The reason is what the test prints.
FORBIDDEN: dict[tuple[str, str], str] = {
    ("codegen", "interpreter"): "the ops carry the meaning; folding calls op.evaluate",
    ("codegen", "frontend"): "code generation sees IR, whoever made it",
    ("codegen", "language"): "code generation sees IR, whoever made it",
    **{
        ("kernels", below): "the library uses the public API only, which makes it a test of it"
        for row in LAYERS
        for below in row
        if RANK[below] < RANK[TOP] and below not in {"language", "testing"}
    },
}

# The same inside of layers: whatever is in the first must not name the second, or what is in it.
FORBIDDEN_INSIDE: dict[tuple[str, str], str] = {
    ("codegen.gpu", "codegen.nvidia"): "an architecture is handed in, by protocols",
    ("codegen.gpu", "layout.nvidia"): "the layouts of instructions are their architecture's",
    ("codegen.gpu", "target.NvidiaTarget"): "what layouts depend on is handed in, by a protocol",
    ("codegen.gpu", "codegen.cpu"): "targets know nothing of each other",
    ("codegen.cpu", "codegen.gpu"): "targets know nothing of each other",
    ("codegen.cpu", "codegen.nvidia"): "targets know nothing of each other",
}

REQUIRED_PACKAGES = frozenset({"numpy", "ml_dtypes", "llvmlite"})
OPTIONAL_PACKAGES = frozenset({"torch", "jax", "jaxlib", "matplotlib", "pandas", "rich"})
LOWEST_WITH_LLVM = "codegen"
LOWEST_WITH_OPTIONAL_PACKAGES = "runtime"
VAGUE_WORDS = frozenset(
    {"util", "utils", "common", "commons", "helper", "helpers", "manager", "managers"}
)


@dataclass(frozen=True)
class Import:
    """One import as written: `importer` names `imported`, a module or a name inside one."""

    importer: str
    imported: str
    place: str
    is_local: bool


def module_files(root: Path, package: str) -> dict[str, Path]:
    """The modules of the package by dotted name; a package stands for its `__init__`."""
    modules = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def walk_with_scope(node: ast.AST, *, is_local: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, with whether it runs only when some function is called."""
    for child in ast.iter_child_nodes(node):
        yield child, is_local
        opens_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from walk_with_scope(child, is_local=is_local or opens_function)


def named_modules(node: ast.AST, importer: str, *, is_package: bool) -> list[str]:
    """The dotted names that an import statement, or a call that imports, asks for."""
    match node:
        case ast.Import(names=names):
            return [name.name for name in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = [module] if module else []
            if level:
                parts = importer.split(".")
                base = parts[: len(parts) - level + is_package] + base
            return [".".join([*base, name.name]) for name in names]
        case ast.Call(
            func=ast.Name(id=("import_module" | "__import__"))
            | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def read_imports(root: Path, module: str, path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node, is_local in walk_with_scope(tree):
        for name in named_modules(node, module, is_package=path.name == "__init__.py"):
            place = f"{path.relative_to(root)}:{node.lineno}"
            yield Import(module, name, place, is_local)


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else TOP


def imported_module(name: str, modules: Iterable[str]) -> str:
    """The module a dotted name leads to: `pkg.ir.Value` to `pkg.ir`, `pkg.ir.types` to itself."""
    while name not in modules and "." in name:
        name = name.rpartition(".")[0]
    return name


def check_inside(edge: Import, target: str) -> Iterator[str]:
    """What is wrong with an import of one of our own modules."""
    source_layer, target_layer = layer_of(edge.importer), layer_of(target)
    if source_layer not in RANK or target_layer not in RANK:
        return  # check_names reports the module itself
    if edge.is_local:
        yield f"{edge.place}: {edge.imported} is imported inside a function"
    if source_layer == target_layer:
        return
    if RANK[source_layer] <= RANK[target_layer]:
        yield f"{edge.place}: {source_layer} must not import {target_layer}, which is not below it"
    elif reason := FORBIDDEN.get((source_layer, target_layer)):
        yield f"{edge.place}: {source_layer} must not import {target_layer}: {reason}"


def check_parts(edge: Import) -> Iterator[str]:
    """What is wrong with an import between parts of layers."""
    package = edge.importer.partition(".")[0]
    for (part, other), reason in FORBIDDEN_INSIDE.items():
        if f"{edge.importer}.".startswith(f"{package}.{part}.") and f"{edge.imported}.".startswith(
            f"{package}.{other}."
        ):
            yield f"{edge.place}: {part} must not import {other}: {reason}"


def check_outside(edge: Import) -> Iterator[str]:
    """What is wrong with an import of another package."""
    package = edge.imported.partition(".")[0]
    rank = RANK.get(layer_of(edge.importer), len(LAYERS))
    is_optional = package in OPTIONAL_PACKAGES
    may_use_optional = rank >= RANK[LOWEST_WITH_OPTIONAL_PACKAGES]
    if edge.is_local and not (is_optional and may_use_optional):
        yield f"{edge.place}: {package} is imported inside a function"
    if package in sys.stdlib_module_names:
        return
    if is_optional and not may_use_optional:
        yield f"{edge.place}: {package} is optional: only {LOWEST_WITH_OPTIONAL_PACKAGES} and above"
    if not is_optional and package not in REQUIRED_PACKAGES:
        yield f"{edge.place}: {package} is not among the dependencies"
    if package == "llvmlite" and rank < RANK[LOWEST_WITH_LLVM]:
        yield f"{edge.place}: llvmlite is for {LOWEST_WITH_LLVM} and above"


def check_names(root: Path, modules: dict[str, Path]) -> Iterator[str]:
    for module, path in modules.items():
        place = path.relative_to(root)
        if layer_of(module) not in RANK:
            yield f"{place}: {layer_of(module)} has no line in LAYERS"
        vague = VAGUE_WORDS.intersection(
            word for part in module.split(".") for word in part.split("_")
        )
        if vague:
            yield f"{place}: {min(vague)!r} says nothing about what is inside"
        if not (path.parent / "__init__.py").is_file():
            yield f"{place}: its folder has no __init__.py"


def find_cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """One import cycle, as a path that ends where it began, or None."""
    finished: set[str] = set()

    def visit(module: str, trail: list[str]) -> list[str] | None:
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module in finished:
            return None
        for target in sorted(graph[module]):
            if cycle := visit(target, [*trail, module]):
                return cycle
        finished.add(module)
        return None

    return next((cycle for module in sorted(graph) if (cycle := visit(module, []))), None)


def check(root: Path, package: str) -> list[str]:
    """Every broken rule under root/package, one line each with its place."""
    modules = module_files(root, package)
    problems = list(check_names(root, modules))
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        for edge in read_imports(root, module, path):
            if edge.imported.partition(".")[0] != package:
                problems += check_outside(edge)
                continue
            target = imported_module(edge.imported, modules)
            problems += check_inside(edge, target)
            problems += check_parts(edge)
            # Importing a submodule also runs the __init__ above it: no edge, no name is used.
            if target in graph and not (target == module and edge.imported != module):
                graph[module].add(target)
    if cycle := find_cycle(graph):
        problems.append(f"import cycle: {' -> '.join(cycle)}")
    return problems


# The package itself.


def test_imports_go_downwards():
    assert module_files(ROOT, PACKAGE), "the package was not found"
    problems = check(ROOT, PACKAGE)
    assert not problems, "\n" + "\n".join(problems)


def test_declared_dependencies_are_the_checked_ones():
    """The lists above and pyproject.toml say the same."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {name.split(">=")[0] for name in project["dependencies"]}
    assert declared == REQUIRED_PACKAGES


# The checker, on small packages that are right or wrong in one way.


def write_package(root: Path, files: dict[str, str]) -> list[str]:
    """Write a package named `pkg` with these files, check it, and return the problems."""
    for name, text in files.items():
        path = root / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for folder in path.relative_to(root).parents[:-1]:
            (root / folder / "__init__.py").touch()
    return check(root, "pkg")


GOOD = {
    "__init__.py": "from pkg.runtime import launch\n",
    "errors.py": "import re\n",
    "ir/__init__.py": "from pkg.ir.types import TileType\nfrom .value import Value\n",
    "ir/types.py": "import numpy as np\nfrom pkg.errors import CompileError\n",
    "ir/value.py": "from . import types\nfrom .types import TileType\n",
    "ops/dot.py": "from pkg.ir import Value, types\n",
    "codegen/cpu/lower.py": "import llvmlite.binding as llvm\nfrom ...ops.dot import Dot\n",
    "runtime/__init__.py": "def launch(x):\n    import torch\n    return torch.ones(x)\n",
    "kernels/softmax.py": "import pkg as tw\nimport pkg.language as tl\n",
    "language.py": "from pkg.ops import dot\n",
    "torch/__init__.py": "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
}


def test_checker_accepts_a_good_package(tmp_path):
    assert write_package(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("ir/value.py", "from pkg.ops import dot\n", "ir must not import ops"),
        ("ir/value.py", "import pkg.ops.dot\n", "ir must not import ops"),
        ("ir/value.py", "from ..ops.dot import Dot\n", "ir must not import ops"),
        ("ir/value.py", "from pkg import ops\n", "ir must not import ops"),
        ("ir/value.py", "from .. import launch\n", "ir must not import __init__"),
        ("ir/value.py", "from pkg import launch\n", "ir must not import __init__"),
        (
            "ir/value.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg.ops import dot\n",
            "pkg/ir/value.py:3: ir must not import ops",
        ),
        (
            "ir/value.py",
            "import importlib\nimportlib.import_module('pkg.ops.dot')\n",
            "ir must not import ops",
        ),
        ("ir/value.py", "__import__('pkg.ops')\n", "ir must not import ops"),
        ("torch/__init__.py", "from pkg import jax\n", "torch must not import jax"),
        ("codegen/cpu/lower.py", "from pkg.frontend import build\n", "sees IR"),
        ("codegen/gpu/pull.py", "from pkg.codegen.nvidia.maps import Map\n", "is handed in"),
        ("codegen/gpu/pull.py", "from pkg.codegen import nvidia\n", "is handed in"),
        ("codegen/gpu/pull.py", "from pkg.target import NvidiaTarget\n", "is handed in"),
        ("codegen/cpu/lower.py", "from pkg.codegen.gpu import pull\n", "nothing of each other"),
        ("kernels/softmax.py", "from pkg.runtime import launch\n", "public API only"),
        ("ops/dot.py", "def f():\n    from pkg.ir import types\n", "inside a function"),
        ("ops/dot.py", "def f():\n    import json\n", "json is imported inside a function"),
        ("runtime/launch.py", "def f():\n    import json\n", "json is imported inside a function"),
        ("runtime/launch.py", "f = lambda: __import__('json')\n", "inside a function"),
        ("passes/fold.py", "def f():\n    import torch\n", "torch is imported inside a function"),
        ("passes/fold.py", "import torch\n", "torch is optional"),
        ("passes/fold.py", "import llvmlite\n", "llvmlite is for codegen and above"),
        ("codegen/cpu/lower.py", "import scipy\n", "scipy is not among the dependencies"),
        ("ir/utils.py", "", "'utils' says nothing"),
        ("runtime/cache_manager.py", "", "'manager' says nothing"),
        ("codegen/common/__init__.py", "", "'common' says nothing"),
        ("misc.py", "", "misc has no line in LAYERS"),
        ("ir/types.py", "from pkg.ir.value import Value\n", "import cycle: pkg.ir."),
        ("ir/types.py", "from pkg.ir import Value\n", "import cycle: pkg.ir -> pkg.ir."),
        (
            "ir/types.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .value import Value\n",
            "import cycle: pkg.ir.",
        ),
    ],
)
def test_checker_reports(tmp_path, file, text, message):
    more = ("interpreter", "frontend/build", "jax/__init__", "codegen/gpu/pull", "target")
    base = {**GOOD, **{f"{name}.py": "" for name in (*more, "codegen/nvidia/maps")}}
    assert write_package(tmp_path, base) == []
    problems = write_package(tmp_path, {**base, file: text})
    assert message in "\n".join(problems)


def test_checker_reports_a_folder_that_is_no_package(tmp_path):
    assert write_package(tmp_path, GOOD) == []
    (tmp_path / "pkg" / "ops" / "__init__.py").unlink()
    assert "pkg/ops/dot.py: its folder has no __init__.py" in check(tmp_path, "pkg")

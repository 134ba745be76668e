"""Print how large the package is: lines by layer, the largest files and functions, the ops.

Run it as `python tools/size_report.py`. The limits are alarms, not goals: the soft ones are listed
here, the hard ones fail tests/test_repository.py. Lines of code are never joined to please them.
"""

import ast
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tilewright"

SOFT_FUNCTION_LINES, HARD_FUNCTION_LINES = 30, 70
SOFT_FILE_LINES, HARD_FILE_LINES = 400, 700
SOFT_PASS_FILE_LINES, HARD_PASS_FILE_LINES = 150, 400
LISTED = 8


@dataclass(frozen=True)
class Size:
    """The length of one file or function, and the limits for its kind."""

    lines: int
    place: str
    soft: int
    hard: int


def file_sizes(package: Path = PACKAGE) -> list[Size]:
    """Every Python file of the package, all lines counted, largest first."""
    sizes = []
    for path in package.rglob("*.py"):
        is_pass = path.relative_to(package).parts[0] == "passes"
        soft = SOFT_PASS_FILE_LINES if is_pass else SOFT_FILE_LINES
        hard = HARD_PASS_FILE_LINES if is_pass else HARD_FILE_LINES
        lines = len(path.read_text(encoding="utf-8").splitlines())
        sizes.append(Size(lines, str(path.relative_to(package.parent)), soft, hard))
    return sorted(sizes, key=lambda size: (-size.lines, size.place))


def function_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines from `def` to the end, without the docstring: documentation has no limit."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    match function.body[0]:
        case ast.Expr(value=ast.Constant(value=str())) as docstring:
            assert docstring.end_lineno is not None
            lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def function_sizes(package: Path = PACKAGE) -> list[Size]:
    """Every function and method of the package, nested ones too, largest first."""

    def inside(path: Path) -> Iterator[Size]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{path.relative_to(package.parent)}:{node.lineno} {node.name}"
                yield Size(function_lines(node), place, SOFT_FUNCTION_LINES, HARD_FUNCTION_LINES)

    sizes = [size for path in package.rglob("*.py") for size in inside(path)]
    return sorted(sizes, key=lambda size: (-size.lines, size.place))


def lines_by_layer(package: Path = PACKAGE) -> dict[str, int]:
    """Lines of each package or module directly below the top, largest first."""
    totals: dict[str, int] = {}
    for size in file_sizes(package):
        layer = Path(size.place).relative_to(package.name).parts[0]
        totals[layer] = totals.get(layer, 0) + size.lines
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def count_ops() -> int | None:
    """How many ops are declared, or None if what the package needs is not installed here."""
    try:
        importlib.import_module("tilewright.ops")
        return len(importlib.import_module("tilewright.ir.core").OPS)
    except ImportError:
        return None


def print_largest(kind: str, sizes: list[Size]) -> None:
    """Print the largest of the sizes, and how many are over the limits."""
    over_soft = sum(size.lines > size.soft for size in sizes)
    over_hard = sum(size.lines > size.hard for size in sizes)
    print(f"\n{kind}: {len(sizes)}, {over_soft} over the soft limit, {over_hard} over the hard one")
    for size in sizes[:LISTED]:
        mark = "!!" if size.lines > size.hard else "! " if size.lines > size.soft else "  "
        print(f"  {mark} {size.lines:5}  {size.place}")


def main() -> None:
    """Print the report."""
    sys.path.insert(0, str(ROOT))
    layers = lines_by_layer()
    kernels = layers.get("kernels", 0)
    total = sum(layers.values())
    print(f"lines: {total}, of which {total - kernels} in the core (without kernels/)")
    for layer, lines in layers.items():
        print(f"     {lines:5}  {layer}")
    print_largest("files", file_sizes())
    print_largest("functions", function_sizes())
    ops = count_ops()
    print(f"\nops: {'not importable here' if ops is None else ops}")


if __name__ == "__main__":
    main()

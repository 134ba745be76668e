"""The table and the plot of `gpu.py`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.systems import LIBRARY, TILEWRIGHT, TRITON

__all__ = ["aligned", "mark", "plot", "ratio", "shown", "summary", "table"]

EQUAL = 0.02  # figures less apart than this count as equal


def rate(result: Mapping[str, Any], side: str) -> float | None:
    found: float | None = result["sides"].get(side, {}).get("rate")
    return found


def ratio(result: Mapping[str, Any]) -> float | None:
    """How much better Tilewright is than Triton: 2 at twice the rate, or half the cost."""
    ours, theirs = rate(result, TILEWRIGHT), rate(result, TRITON)
    if ours is None or theirs is None:
        return None
    return theirs / ours if is_cost(result) else ours / theirs


def is_cost(result: Mapping[str, Any]) -> bool:
    return bool(result.get("is_cost"))


def mark(result: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether the goal is met; nothing where Triton is not there."""
    ours = rate(result, TILEWRIGHT)
    if ours is None:
        return "fails"
    if result.get("limit"):
        return "ok" if ours <= result["limit"] else "over"
    floor = rate(others[result["floor"]], TILEWRIGHT) if result["floor"] in others else None
    if floor is not None and ours < floor * (1 - EQUAL):
        return f"under {result['floor']}"
    found = ratio(result)
    if found is None:
        return ""
    return "ok" if found >= result["goal"] else "equal" if is_equal(result, found) else "under"


def is_equal(result: Mapping[str, Any], found: float) -> bool:
    return bool(result["goal"] == 1 and found > 1 - EQUAL)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    others = {result["name"]: result for result in results}
    lines = [["row", "Tilewright", "Triton", "library", "", "ours/Triton", "goal", ""]]
    for result in results:
        found = ratio(result)
        lines.append(
            [
                result["name"],
                *(cell(result, side) for side in (TILEWRIGHT, TRITON, LIBRARY)),
                result["unit"],
                "" if found is None else f"{found:.2f}x",
                f"{result['limit']:g}" if result.get("limit") else f"{result['goal']:.2f}x",
                mark(result, others),
            ]
        )
    return aligned(lines)


def summary(results: Sequence[Mapping[str, Any]]) -> str:
    """How many rows meet their goal, and the geometric mean of the ratios."""
    others = {result["name"]: result for result in results}
    marks = [mark(result, others) for result in results]
    counts = {
        "ok": marks.count("ok"),
        "equal": marks.count("equal"),
        "under": sum(found.startswith(("under", "over")) for found in marks),
        "failing": marks.count("fails"),
    }
    parts = [f"{count} {name}" for name, count in counts.items()]
    ratios = [found for result in results if (found := ratio(result)) is not None]
    if ratios:
        parts.append(f"geometric mean of ours/Triton {statistics.geometric_mean(ratios):.2f}x")
    return ", ".join(parts)


def cell(result: Mapping[str, Any], side: str) -> str:
    found = rate(result, side)
    if found is not None:
        return shown(found)
    if side == LIBRARY or side not in result["sides"]:
        return "-"
    return "wrong" if result["sides"][side]["failure"].startswith("wrong") else "fails"


def shown(figure: float) -> str:
    """Three digits of a figure, or all before the point."""
    return f"{figure:.{0 if figure >= 100 else 1 if figure >= 10 else 2}f}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def align(line: Sequence[str]) -> str:
        first, *others = zip(line, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
        return "  ".join(cells).rstrip()

    header, *rest = map(align, lines)
    return "\n".join([header, "-" * max(map(len, [header, *rest])), *rest])


def plot(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the ratios to Triton, and the library's, as bars; needs matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = [result for result in results if ratio(result) is not None]
    places = list(range(len(shown)))
    figure, axes = plt.subplots(figsize=(9, 1 + 0.3 * len(shown)))
    axes.barh(places, [ratio(result) for result in shown], color="tab:blue", label="Tilewright")
    libraries = [
        (place, found / theirs)
        for place, result in zip(places, shown, strict=True)
        if (found := rate(result, LIBRARY)) and (theirs := rate(result, TRITON))
    ]
    axes.scatter(
        [beside for _, beside in libraries],
        [place for place, _ in libraries],
        marker="d",
        color="tab:green",
        label="library",
        zorder=3,
    )
    goals = [result["goal"] for result in shown]
    axes.scatter(goals, places, marker="|", s=200, color="tab:red", label="goal", zorder=3)
    axes.set_yticks(places, [result["name"] for result in shown])
    axes.invert_yaxis()
    axes.set_xlabel("rate beside Triton's (costs: Triton's beside Tilewright's)")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", dpi=150)
    plt.close(figure)

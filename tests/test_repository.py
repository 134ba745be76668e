"""The repository keeps its own promises: sizes, documentation, and pages whose examples run."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.size_report import count_ops, file_sizes, function_sizes

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tilewright"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")],
)
TEXT_ENDINGS = {".cfg", ".ir", ".md", ".py", ".toml", ".txt", ".yaml", ".yml"}
TEXT_NAMES = {"LICENSE", "Makefile", "run", ".gitignore"}
SNIPPET_SECONDS = 120

ERRORS = {"CompileError", "CompileTimeAssertionFailure", "LaunchError", "Unsupported"}
# What an error without a way out says.
SUFFICE = {
    # What is taken, all of it.
    r"must be one of|must be 'rtne' or 'rtz'|must be 'zero' or 'nan'|must be tl\.PropagateNan",
    r"must be a string|args must be a list|args are a list|products are fp32, fp16 or bf16",
    r"expected a dtype such as|expected the arguments|only e2m1 is|kernels need none",
    # What is wrong with a text of the IR.
    r"tile IR, line|found \{self\.token",
    # What the user's own program says, or Python, or the emulator with its findings.
    r"static_assert:|device-side assert|LaunchError\(text, location|AssertionFailure\(text\)",
    r"type\(error\)\.__name__|error\.message|report\.findings",
}
# Rules for IR that is given as text: what comes from kernels has been looked at before.
BEHIND_THE_LANGUAGE = PACKAGE / "ops"


# Sizes and documentation.


def test_no_file_is_over_the_hard_limit():
    over = [
        f"{size.lines} > {size.hard}: {size.place}"
        for size in file_sizes()
        if size.lines > size.hard
    ]
    assert not over, "split by theme:\n" + "\n".join(over)


def test_no_function_is_over_the_hard_limit():
    over = [
        f"{size.lines} > {size.hard}: {size.place}"
        for size in function_sizes()
        if size.lines > size.hard
    ]
    assert not over, "give the parts names:\n" + "\n".join(over)


def test_sizes_are_measured(tmp_path):
    package = tmp_path / "pkg"
    (package / "passes").mkdir(parents=True)
    body = '    """Say what it does.\n\n    More.\n    """\n' + "    x = 1\n" * 71
    (package / "passes" / "fold.py").write_text(f"def fold():\n{body}" + "y = 1\n" * 400)
    (function,), (file,) = function_sizes(package), file_sizes(package)
    assert (function.lines, function.place) == (72, "pkg/passes/fold.py:1 fold")
    assert (file.lines, file.hard) == (476, 400)
    assert count_ops() > 50


# Errors.


def errors_without_a_way_out():
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_relative_to(BEHIND_THE_LANGUAGE):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _has_no_hint(node):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"


def _has_no_hint(call):
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    named = {keyword.arg for keyword in call.keywords}
    if any("else ''" in ast.unparse(keyword.value) for keyword in call.keywords):
        return True
    if name in ERRORS:
        return not named & {"hint", None}
    return name == "fail" and len(call.args) == 1 and not named


def test_every_error_has_a_way_out_or_says_what_is_taken():
    suffices = re.compile("|".join(SUFFICE))
    assert [error for error in errors_without_a_way_out() if not suffices.search(error)] == []


# Documentation.


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public functions and classes at the top of a module that have no docstring."""
    for node in tree.body:
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and ast.get_docstring(node) is None
            and not is_overload(node)
        ):
            yield f"{node.lineno} {node.name}"


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any("overload" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_public_names_are_documented():
    missing = [
        f"{path.relative_to(ROOT)}:{name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in undocumented(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not missing, "without a docstring:\n" + "\n".join(missing)


def test_undocumented_names_are_found():
    text = 'def f(): ...\ndef _g(): ...\nclass C: ...\ndef h():\n    """Say."""\n'
    assert list(undocumented(ast.parse(text))) == ["1 f", "3 C"]


def test_the_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    said = re.search(r'^__version__\s*(?::.*)?=\s*"([^"]+)"', text, re.MULTILINE)
    assert said is None or said[1] == project["version"]


# Pages.


def snippets(text: str) -> Iterator[tuple[int, str, bool]]:
    """The Python blocks of a page: line, source, and whether it is marked as not to be run.

    The mark is a comment on the line before the block: `<!-- no-run: the reason -->`.
    """
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before = text[: block.start()].rstrip("\n")
        is_marked = re.fullmatch(r"<!-- no-run: \S.* -->", before.rpartition("\n")[2]) is not None
        yield text[: block.start()].count("\n") + 1, block[1], is_marked


def programs(page: Path) -> Iterator[tuple[int, str]]:
    """The Python programs of a page: each block is one, but all of a tutorial are one together."""
    found = [
        (line, source)
        for line, source, is_marked in snippets(page.read_text(encoding="utf-8"))
        if not is_marked
    ]
    if page.parent.name == "tutorials":
        found = [(1, "\n\n".join(source for _, source in found))]
    yield from found


def page_snippets() -> list[object]:
    return [
        pytest.param(source, id=f"{page.relative_to(ROOT)}:{line}")
        for page in PAGES
        for line, source in programs(page)
    ]


@pytest.mark.parametrize("source", page_snippets())
def test_examples_on_pages_run(source, tmp_path):
    script = tmp_path / "snippet.py"
    script.write_text(source, encoding="utf-8")
    settings = {
        name: value for name, value in os.environ.items() if not name.startswith("TILEWRIGHT_")
    }
    settings |= {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ROOT),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
    }
    result = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=settings,
        capture_output=True,
        text=True,
        timeout=SNIPPET_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_snippets_are_found():
    page = (
        "Text\n\n```python\na\nb\n```\n\n<!-- no-run: a GPU -->\n```python\nc\n```\n```sh\nd\n```\n"
    )
    assert list(snippets(page)) == [(3, "a\nb\n", False), (9, "c\n", True)]


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`[^`\n]+`")


def code_of(page: str) -> str:
    """What a page sets as code: blocks and spans."""
    spans = SPAN.findall(BLOCK.sub("", page))
    return "\n".join([*BLOCK.findall(page), *spans])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_targets_that_exist(page):
    named = re.findall(r"\bmake ([a-z][a-z-]*)", code_of(page.read_text(encoding="utf-8")))
    assert set(named) <= make_targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    prose = SPAN.sub("", BLOCK.sub("", page.read_text(encoding="utf-8")))
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not broken


def test_the_readme_names_the_first_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text


# Every text file.


FORBIDDEN = {
    r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))": "unfinished work carries an issue number: TODO(#12)",
    r"^(<{7}|>{7}) ": "a merge left its marks",
    r"(?<![\w.~/])/(home|root|Users|work|mnt|scratch)/\w": "a path of one machine",
    r"(?i)\b(as (you )?requested|as you asked|per your)\b": "the text speaks to one reader",
    r"(?i)(extra-)?index-url|find-links": "where packages come from is set outside the repository",
    r"[ \t]+$": "trailing blanks",
}


def text_files() -> list[Path]:
    """The files that git follows, or would if they were added; without git, those found."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listing.stdout.split("\0") if listing.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or list(ROOT.rglob("*"))
    hidden = {".git", ".venv", ".venv-torch", ".venv-packages"}
    return [
        path
        for path in paths
        if (path.suffix in TEXT_ENDINGS or path.name in TEXT_NAMES)
        and path.is_file()
        and not hidden.intersection(path.relative_to(ROOT).parts)
        and path != Path(__file__).resolve()  # it spells what it looks for
    ]


def complaints(text: str) -> Iterator[str]:
    for pattern, reason in FORBIDDEN.items():
        for found in re.finditer(pattern, text, re.MULTILINE):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{line}: {found[0].strip()!r}: {reason}"


def test_no_file_has_leftovers():
    found = [
        f"{path.relative_to(ROOT)}:{complaint}"
        for path in text_files()
        for complaint in complaints(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x = 1  # TODO(#12): later\n", 0),
        ("x = 1  # TODO: later\n", 1),
        ("/home/me/x\n", 1),
        ("see https://example.org/home/me\n", 0),
        ("a = 1 \n", 1),
        ("<<<<<<< HEAD\n", 1),
        ("a << 7\n", 0),
    ],
)
def test_leftovers_are_found(text, count):
    assert len(list(complaints(text))) == count

"""Random programs of branches, loops and jumps: traced, eager and plain Python agree."""

import random

import pytest

import tilewright.language as tl
from tests.frontend.harness import returned
from tilewright.frontend.function import KernelFunction

NAMES = ["a", "b", "c"]
LONGEST_LOOP = 4


class Program:
    """Writes one function of `n` and `k`; every loop ends."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counter = 0
        self.helpers: list[str] = []

    def text(self) -> str:
        body = "\n".join(["    a = n", "    b = k", "    c = 1", *self.block(1, loops=0)])
        return f"def f(n, k):\n{body}\n    return a * 10000 + b * 100 + c\n"

    def block(self, depth: int, *, loops: int, can_end: bool = True) -> list[str]:
        count = self.random.randint(1, 4 if depth < 3 else 2)
        lines = [line for _ in range(count) for line in self.statement(depth, loops=loops)]
        if can_end and depth > 1 and self.random.random() < 0.35:
            lines.append("    " * depth + self.jump(loops))
        return lines

    def jump(self, loops: int) -> str:
        if loops and self.random.random() < 0.75:
            return self.random.choice(["break", "continue"])
        return f"return {self.value()} * 7 - a"

    def statement(self, depth: int, *, loops: int) -> list[str]:
        indent = "    " * depth
        kind = self.random.random()
        if depth >= 5 or kind < 0.4:
            return [indent + self.assignment()]
        if kind < 0.7:
            lines = [f"{indent}if {self.condition()}:", *self.block(depth + 1, loops=loops)]
            if self.random.random() < 0.3:
                lines += [f"{indent}elif {self.condition()}:"]
                lines += self.block(depth + 1, loops=loops)
            if self.random.random() < 0.5:
                lines += [f"{indent}else:", *self.block(depth + 1, loops=loops)]
            return lines
        self.counter += 1
        i = f"i{self.counter}"
        body = self.block(depth + 1, loops=loops + 1)
        kind = self.random.random()
        if kind < 0.4:
            header = f"{indent}for {i} in range({self.bounds()}):"
            return [header, f"{indent}    {self.random.choice(NAMES)} += {i}", *body]
        if kind < 0.6:
            header = f"{indent}for {i} in tl.static_range({self.random.randint(0, 3)}):"
            return [header, f"{indent}    {self.random.choice(NAMES)} += {i}", *body]
        loop = [f"{indent}    {i} += 1", *body]
        if kind < 0.8:
            header = f"{indent}while {i} < {LONGEST_LOOP} and {self.condition()}:"
            return [f"{indent}{i} = 0", header, *loop]
        leave = [f"{indent}    if {i} > {LONGEST_LOOP}:", f"{indent}        break"]
        return [f"{indent}{i} = 0", f"{indent}while True:", loop[0], *leave, *loop[1:]]

    def bounds(self) -> str:
        start, stop = (
            self.random.randint(-2, 3),
            self.random.choice(["n & 3", "k & 3", "3", "a & 3"]),
        )
        step = self.random.choice(["1", "2", "-1", "k - 2"])
        return (
            f"{start}, {stop}, {step}" if step != "k - 2" else f"{start}, {stop}, k - 2 + (k == 2)"
        )

    def assignment(self) -> str:
        kind = self.random.random()
        if kind < 0.2:
            x, y = self.random.sample(NAMES, 2)
            return f"{x}, {y} = {y}, {self.value()}"
        if kind < 0.4:
            return f"{self.random.choice(NAMES)} += {self.value()}"
        if kind < 0.55:
            sides = f"{self.value()} if {self.condition()} else {self.value()}"
            return f"{self.random.choice(NAMES)} = {sides}"
        return f"{self.random.choice(NAMES)} = {self.value()}"

    def value(self) -> str:
        x, y = self.random.choice(NAMES), self.random.choice([*NAMES, "n", "k", "3", "-2"])
        sums = [f"({x} + {y}) & 63", f"({x} - {y}) & 127", f"({x} * 3 + 1) & 31"]
        return self.random.choice([*sums, x])

    def condition(self) -> str:
        x, y = self.random.choice(NAMES), self.random.choice([*NAMES, "n", "k", "2", "5"])
        simple = f"{x} {self.random.choice(['<', '>', '==', '!='])} {y}"
        if self.random.random() < 0.2:
            return f"not ({simple} or {x} & 1 == 0)"
        return simple


def check(seed: int) -> None:
    text = Program(seed).text()
    namespace = {"tl": tl}
    exec(text, namespace)
    python = dict(namespace)
    exec(text.replace("tl.static_range", "range"), python)
    function = KernelFunction(namespace["f"], source=text)
    for n, k in ((0, 1), (3, 2), (7, 5)):
        assert returned(function, n, k) == [python["f"](n, k)], (n, k, text)
    assert returned(function, 3, k=2) == [python["f"](3, 2)], text


@pytest.mark.parametrize("seed", range(24))
def test_programs_agree(seed):
    check(seed)

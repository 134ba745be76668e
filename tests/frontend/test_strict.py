"""Strict kernels: each extension over Triton's subset is an error that says Triton's way."""

import textwrap

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.kernels import attention, descriptors, elementwise, layer_norm, matmul
from tilewright.errors import CompileError
from tilewright.runtime.jit import JITFunction

HEAD = "def body(out_ptr, n, x):\n    t = tl.arange(0, 4)\n"

DESCRIPTOR = "d = tl.make_tensor_descriptor(out_ptr, [n], [1], [4])"

# What is refused, by what the message says; the last line is the one at fault.
EXTENSIONS = {
    "`break`": "for i in range(n):\n    break",
    "`continue`": "for i in range(n):\n    if n:\n        continue",
    "`return` in a loop": "for i in range(n):\n    return",
    "a loop over anything": "for i in (1, 2):\n    pass",
    "whose condition is a constant": "while True:\n    n += 1",
    "a chain of comparisons": "y = 0 < n < 5",
    "several targets": "a = b = n",
    "a function inside": "f = lambda v: v",
    "a comprehension": "y = [v for v in (1, 2) if v > 1]",
    "a format in an f-string": "tl.static_print(f'{3:04d}')",
    "`in`": "tl.static_assert(1 in (1, 2))",
    "`else` of a loop": "for i in range(n):\n    pass\nelse:\n    pass",
    "a starred target": "a, *b = (1, 2)",
    "`==` of i32 and None": "y = n == None",
    "`.to` of the constant 1": "y = (1).to(tl.int8)",
    "a condition of i32": "y = tl.where(n, 1, 2)",
    "the index `i` read after its loop": "for i in range(4): pass\nn += i",
    "`y`, first bound in a loop": "for i in range(4): y = n\nn += y",
    "enumerate(...)": "y = enumerate((1, 2))",
    "sum(...)": "y = sum((1, 2))",
    "`**` of a runtime value": "y = x ** 2",
    "unary `+`": "y = +x",
    "`//` of floats": "y = x // 2.0",
    "`and` of i32": "y = (n > 1) and n",
    "a part of a tile": "y = t[0]",
    "a part of a tile: ": "y = t[1:3]",
    "`...` in an index": "y = t[..., None]",
    "argsort": "y = tl.argsort(t)",
    "a tile of shape [3]": "y = tl.arange(0, 3)",
    "exp of i32": "y = tl.exp(n)",
    "exp of fp16": "y = tl.exp(x.to(tl.float16))",
    "a conversion of i32 to fp8e5": "y = n.to(tl.float8e5)",
    "sort along another axis": "y = tl.sort(t[:, None], 0)",
    "atomic_min of fp32": f"{DESCRIPTOR}\nd.atomic_min([0], tl.zeros((4,), tl.float32))",
    "an offset of i64": f"{DESCRIPTOR}\ny = d.load([n.to(tl.int64)])",
}


def kernel_of(statements, *, strict):
    source = HEAD + textwrap.indent(statements, "    ") + "\n"
    namespace = {"tl": tl}
    exec(source, namespace)
    return tw.jit(source=source, strict=strict)(namespace["body"])


@pytest.mark.parametrize("text", EXTENSIONS)
@pytest.mark.parametrize("executor", ["compiled", "eager"])
def test_extensions_are_refused(text, executor):
    kernel = kernel_of(EXTENSIONS[text], strict=True)
    out = np.zeros(4, np.float32)
    start = kernel if executor == "compiled" else kernel.debug
    with pytest.raises(CompileError) as raised:
        start[(1,)](out, 3, 2.5)
    message = str(raised.value)
    assert text.removesuffix(": ") in message
    assert "Triton has not this, and the kernel is strict" in message
    assert "try:" in message
    assert "^" in message


def test_keyword_only_parameters():
    source = "def body(out_ptr, *, n):\n    tl.store(out_ptr, n)\n"
    namespace = {"tl": tl}
    exec(source, namespace)
    kernel = tw.jit(source=source, strict=True)(namespace["body"])
    with pytest.raises(CompileError, match="a keyword-only parameter"):
        kernel[(1,)](np.zeros(1, np.int32), n=3)


def test_half_precision_atomics():
    kernel = kernel_of("tl.atomic_max(out_ptr, x)", strict=True)
    with pytest.raises(CompileError, match="atomic_max of fp16"):
        kernel[(1,)](np.zeros(1, np.float16), 3, 2.5)


def test_without_it_they_are_allowed():
    for text, statements in EXTENSIONS.items():
        if "constant" not in text:
            kernel_of(statements, strict=False)[(1,)](np.zeros(4, np.float32), 3, 2.5)


KERNELS = [
    value
    for module in (attention, descriptors, elementwise, layer_norm, matmul)
    for value in vars(module).values()
    if isinstance(value, JITFunction)
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernels_for_triton_are_strict_already(kernel):
    assert JITFunction(kernel.fn, strict=True).syntax.tree.name == kernel.name


@tw.jit(strict=True)
def softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = (column < columns) & (columns > 0)
    total = 0.0
    for i in tl.static_range(2):
        x = tl.load(x_ptr + i * columns + column, mask=inside, other=-float("inf"))
        y = tl.softmax(x)
        tl.store(out_ptr + i * columns + column, y, mask=inside)
        total += tl.sum(y)
    tl.device_assert(total > min(1.5, columns))


def test_a_strict_kernel_runs(launch):
    x = np.random.default_rng(0).standard_normal((2, 5), dtype=np.float32)
    out = np.zeros_like(x)
    launch(softmax, (1,), x, out, 5, BLOCK=8)
    np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-6)


def test_the_environment_makes_kernels_strict(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_STRICT", "1")
    kernel = kernel_of("y = x ** 2", strict=None)
    relaxed = kernel_of("y = x ** 2", strict=False)
    assert (kernel.is_strict, relaxed.is_strict) == (True, False)
    assert kernel.fingerprint != relaxed.fingerprint

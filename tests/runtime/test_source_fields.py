"""Kernels that programs write from the text of other kernels, as packages of kernels do."""

import inspect
import types

import numpy as np

import tilewright as tw
import tilewright.language as tl

SCALE = tl.constexpr(3)


@tw.jit
def increase(x):
    return x + SCALE


@tw.jit
def apply(x_ptr, out_ptr, FUNCTION: tl.constexpr, N: tl.constexpr):
    # The function is put in place of the parameter.
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), FUNCTION(x))


def made_of(kernel, function):
    """A kernel with a constant of another one in its body, on a function that has no body."""

    def stand_in():
        pass

    lines = kernel.src.splitlines()
    text = "\n".join(
        ["def applied(x_ptr, out_ptr, N: tl.constexpr = 4):", "    FUNCTION = increase", *lines[1:]]
    )
    names = {**kernel.get_capture_scope(), "increase": function}
    exec(text, names)
    fn = types.FunctionType(stand_in.__code__, names)
    fn.__signature__, fn.__name__ = inspect.signature(names["applied"]), "applied"
    parameters = list(inspect.signature(tw.JITFunction.__init__).parameters.values())[2:]
    settings = {p.name: getattr(kernel, p.name, p.default) for p in parameters}
    made = tw.JITFunction(fn, **settings)
    made._unsafe_update_src(text)
    made.raw_src, made.starting_line_number = list(kernel.raw_src), kernel.starting_line_number
    return made


def test_a_kernel_made_of_the_text_of_another(launch):
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    launch(made_of(apply, increase), (1,), x, out)
    assert out.tolist() == [3, 4, 5, 6]


def test_what_a_kernel_tells_of_its_source():
    assert apply.raw_src[0].startswith("def apply(")
    assert "".join(apply.raw_src) == apply.src
    assert apply.starting_line_number == apply.def_file_line_number == apply.first_line
    assert apply.file_name == __file__
    assert apply.def_file_col_number == 0
    assert apply.module == __name__
    assert apply.get_capture_scope()["SCALE"] is SCALE
    assert apply.parse().body[0].name == "apply"
    assert not apply.is_gluon()


def test_settings_are_where_they_were_given():
    @tw.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=[0], noinline=True)
    def kernel(x_ptr, n):
        tl.store(x_ptr, n)

    assert kernel.do_not_specialize == ("n",)
    assert kernel.do_not_specialize_on_alignment == (0,)
    assert kernel.noinline


@tw.jit
def grown(x):
    return x + 1


@tw.jit
def patched(out_ptr):
    tl.store(out_ptr, grown(10))


def test_another_text_is_taken_over(launch):
    def run():
        out = np.zeros(1, np.int32)
        launch(patched, (1,), out)
        return int(out[0]), patched.cache_key

    texts = grown.src, patched.src
    try:
        first, key = run()
        patched._unsafe_update_src(texts[1].replace("10", "20"))
        second, other = run()
        grown._unsafe_update_src(texts[0].replace("+ 1", "+ 5"))
        patched.hash = None
        assert (first, second, run()[0]) == (11, 21, 25)
        assert key != other
    finally:
        grown._unsafe_update_src(texts[0])
        patched._unsafe_update_src(texts[1])

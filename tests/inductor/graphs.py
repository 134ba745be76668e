"""Small graphs that Inductor makes kernels of: each a function and what makes its arguments.

`GRAPHS` has them by name; a test compiles each and compares with eager mode. They run on any
device: `Inputs` makes tensors there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - its name everywhere

__all__ = ["GRAPHS", "Graph", "Inputs"]


class Inputs:
    """Arguments for graphs, on one device, always the same."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._generator = torch.Generator().manual_seed(0)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Any:
        """Return normally distributed numbers."""
        made = torch.randn(*shape, generator=self._generator).to(self.device, dtype)
        return made.requires_grad_(grad)

    def between(self, low: float, high: float, *shape: int) -> Any:
        """Return numbers of an interval."""
        made = torch.rand(*shape, generator=self._generator)
        return (low + (high - low) * made).to(self.device)

    def ints(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Any:
        """Return ints from `low` to below `high`."""
        made = torch.randint(low, high, shape, generator=self._generator)
        return made.to(self.device, dtype)

    def bools(self, *shape: int) -> Any:
        """Return truth values."""
        return self.ints(0, 2, *shape, dtype=torch.bool)

    def special(self, *shape: int) -> Any:
        """Return normal numbers with zeros, infinities and NaN among them."""
        made = torch.randn(*shape, generator=self._generator).flatten()
        for place, value in enumerate((0.0, -0.0, float("inf"), -float("inf"), float("nan"))):
            made[place :: 37 + place] = value
        return made.reshape(shape).to(self.device)


@dataclass(frozen=True)
class Graph:
    """A function of tensors, and what makes its arguments.

    `tolerance` is relative and absolute, None: what is usual for the type of the result. `grads`
    compares gradients, too. `options` are of Inductor's configuration. With `templates` the
    kernel comes from one of Inductor's templates for products.
    """

    function: Callable[..., Any]
    inputs: Callable[[Inputs], tuple[Any, ...]]
    tolerance: float | None = None
    grads: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    templates: bool = False


GRAPHS: dict[str, Graph] = {}


def add(name: str, function: Callable[..., Any], inputs: Any, **settings: Any) -> None:
    """Enter a graph; a tuple of sizes stands for one tensor of normal numbers."""
    assert name not in GRAPHS, name
    make = inputs if callable(inputs) else lambda i: (i.normal(*inputs),)
    GRAPHS[name] = Graph(function, make, **settings)


ROWS = (33, 129)

# ---- functions of one number ------------------------------------------------------------------

for name in (
    "abs", "atan", "ceil", "cos", "deg2rad", "erf", "erfc", "exp", "exp2", "expm1", "floor", "frac",
    "isfinite", "isinf", "isnan", "logical_not", "nan_to_num", "neg", "positive", "rad2deg",
    "reciprocal", "relu", "round", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "square",
    "tan", "tanh", "trunc", "asinh",
):  # fmt: skip
    add(name, getattr(torch, name), lambda i: (i.special(*ROWS),))
for name in ("cosh", "sinh"):
    add(name, getattr(torch, name), lambda i: (i.special(*ROWS),))
for name in ("log", "log10", "log1p", "log2", "sqrt", "rsqrt", "lgamma", "digamma"):
    add(name, getattr(torch, name), lambda i: (i.between(0.1, 30.0, *ROWS),))
for name in ("acos", "asin", "atanh", "erfinv"):
    add(name, getattr(torch, name), lambda i: (i.between(-0.99, 0.99, *ROWS),))
add("acosh", torch.acosh, lambda i: (i.between(1.0, 40.0, *ROWS),))
add("logit", lambda x: torch.logit(x, 1e-6), lambda i: (i.between(0.0, 1.0, *ROWS),))
add("frexp", torch.frexp, ROWS)
for name in (
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i0e", "i1", "i1e", "log_ndtr",
    "ndtr", "modified_bessel_i0", "modified_bessel_i1", "erfcx",
):  # fmt: skip
    low = 0.1 if name in {"bessel_y0", "bessel_y1"} else -6.0
    make = lambda i, low=low: (i.between(low, 8.0, *ROWS),)  # noqa: E731 - a table
    add(name, getattr(torch.special, name), make, tolerance=2e-5)
for name in (
    "celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid",
    "mish", "relu6", "selu", "silu", "softplus", "softsign", "tanhshrink",
):  # fmt: skip
    add(f"nn_{name}", getattr(F, name), lambda i: (i.normal(*ROWS, grad=True),), grads=True)
add("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), ROWS)
add("sin_float64", torch.sin, lambda i: (i.normal(*ROWS, dtype=torch.float64),))
add("exp_bfloat16", torch.exp, lambda i: (i.normal(*ROWS, dtype=torch.bfloat16),))
add("sigmoid_float16", torch.sigmoid, lambda i: (i.normal(*ROWS, dtype=torch.float16),))

# ---- functions of two or three numbers --------------------------------------------------------

for name in (
    "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign",
    "nextafter", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
    "heaviside", "fmod", "remainder", "logaddexp",
):  # fmt: skip
    add(f"{name}_float", getattr(torch, name), lambda i: (i.special(*ROWS), i.normal(*ROWS)))
for name in ("add", "mul", "floor_divide", "remainder", "fmod", "bitwise_and", "bitwise_or",
             "bitwise_xor", "maximum", "gcd", "eq"):  # fmt: skip
    make = lambda i: (i.ints(-99, 99, *ROWS), i.ints(1, 9, *ROWS))  # noqa: E731 - a table
    add(f"{name}_int", getattr(torch, name), make)
add("floor_divide_float", torch.floor_divide, lambda i: (i.normal(*ROWS), i.normal(*ROWS)))
add("shift_left", torch.bitwise_left_shift, lambda i: (i.ints(0, 99, 50), i.ints(0, 9, 50)))
add("shift_right", torch.bitwise_right_shift, lambda i: (i.ints(-99, 99, 50), i.ints(0, 9, 50)))
add("bitwise_not", torch.bitwise_not, lambda i: (i.ints(-99, 99, 50),))
add("pow_float", torch.pow, lambda i: (i.between(0.1, 4.0, *ROWS), i.normal(*ROWS)))
add("pow_int", torch.pow, lambda i: (i.ints(-9, 9, *ROWS), i.ints(0, 9, *ROWS)))
add("pow_scalar", lambda x: x**3 + x**0.5, lambda i: (i.between(0.0, 4.0, *ROWS),))
add("xlogy", torch.xlogy, lambda i: (i.between(0.0, 2.0, 70), i.between(0.1, 3.0, 70)))
add("true_divide_int", torch.true_divide, lambda i: (i.ints(-9, 9, 70), i.ints(1, 9, 70)))
add("div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    lambda i: (i.ints(-99, 99, 70), i.ints(1, 9, 70)))  # fmt: skip
add("ldexp", torch.ldexp, lambda i: (i.normal(70), i.ints(-5, 5, 70)))
add("lerp", torch.lerp, lambda i: (i.normal(*ROWS), i.normal(*ROWS), i.normal(*ROWS)))
add("where", torch.where, lambda i: (i.bools(*ROWS), i.normal(*ROWS), i.normal(*ROWS)))
add("clamp", lambda x: x.clamp(-0.5, 0.7), ROWS)
add("clamp_tensor", torch.clamp, lambda i: (i.normal(70), -i.normal(70).abs(), i.normal(70).abs()))
add("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.3),
    lambda i: (i.normal(70), i.normal(70), i.normal(70)))  # fmt: skip
add("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.3),
    lambda i: (i.normal(70), i.normal(70), i.between(1.0, 2.0, 70)))  # fmt: skip
add("broadcast", lambda x, y: x * y + 1, lambda i: (i.normal(33, 1), i.normal(129)))
add("outer", torch.outer, lambda i: (i.normal(33), i.normal(65)))
add("prelu", F.prelu, lambda i: (i.normal(4, 3, 9), i.normal(3)))
add("glu", F.glu, (16, 34))
add("swiglu", lambda x, y: F.silu(x) * y, lambda i: (i.normal(*ROWS), i.normal(*ROWS)))

# ---- types ------------------------------------------------------------------------------------

for kind in (torch.int32, torch.int64, torch.int8, torch.float16, torch.bfloat16, torch.float64):
    name = str(kind).removeprefix("torch.")
    add(f"float_to_{name}", lambda x, kind=kind: (x * 9).to(kind), ROWS)
for kind in (torch.int32, torch.int64, torch.int8, torch.uint8, torch.int16, torch.bool):
    name = str(kind).removeprefix("torch.")
    make = lambda i, kind=kind: (i.ints(0, 2, 70, dtype=kind),)  # noqa: E731 - a table
    add(f"{name}_to_float", lambda x: x.to(torch.float32) + 1, make)
for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
    name = str(kind).removeprefix("torch.")
    add(f"to_{name}", lambda x, kind=kind: x.to(kind).to(torch.float32), ROWS)
add("uint8_wraps", lambda x: x + x, lambda i: (i.ints(0, 256, 70, dtype=torch.uint8),))
add("int8_wraps", lambda x: x * x, lambda i: (i.ints(-99, 99, 70, dtype=torch.int8),))
add("mixed_types", lambda x, y: x + y, lambda i: (i.normal(70, dtype=torch.float16), i.normal(70)))
add("bool_sum", lambda x: x.sum(-1), lambda i: (i.bools(*ROWS),))
add("bitcast", lambda x: x.view(torch.int32) & 0x7FFFFFFF, (70,))
add("arange", lambda x: x + torch.arange(129, device=x.device), ROWS)
add("full_like", lambda x: torch.full_like(x, 3) - torch.ones_like(x), ROWS)
add("linspace", lambda x: x + torch.linspace(0, 1, 129, device=x.device), ROWS)

# ---- reductions -------------------------------------------------------------------------------

for name in ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "nansum"):
    function = getattr(torch, name)
    add(f"{name}_rows", lambda x, f=function: f(x, -1), ROWS)
    add(f"{name}_columns", lambda x, f=function: f(x, 0), (300, 17))
for name in ("sum", "mean", "prod", "argmax", "argmin", "any", "all", "max", "min", "norm"):
    function = getattr(torch, name)
    add(f"{name}_all", lambda x, f=function: f(x), (21, 13))
add("sum_large", torch.sum, (300, 1000), tolerance=1e-3)
add("mean_middle", lambda x: x.mean(1), (7, 130, 9))
add("sum_several", lambda x: x.sum((0, 2)), (7, 13, 90))
add("sum_keepdim", lambda x: x - x.sum(-1, keepdim=True), ROWS)
add("prod_rows", lambda x: x.prod(-1), lambda i: (i.between(0.9, 1.1, *ROWS),))
add("argmax_rows", lambda x: x.argmax(-1), ROWS)
add("argmin_columns", lambda x: x.argmin(0), (300, 17))
add("argmax_ties", lambda x: x.argmax(-1), lambda i: (i.ints(0, 4, *ROWS),))
add("argmax_nan", lambda x: x.argmax(-1), lambda i: (i.special(*ROWS),))
add("max_values_indices", lambda x: x.max(-1), ROWS)
add("min_values_indices", lambda x: x.min(0), ROWS)
add("amax_nan", lambda x: x.amax(-1), lambda i: (i.special(*ROWS),))
add("aminmax", lambda x: torch.aminmax(x, dim=-1), ROWS)
add("any_rows", lambda x: (x > 2.5).any(-1), ROWS)
add("all_rows", lambda x: (x > -2.5).all(-1), ROWS)
add("var_mean", lambda x: torch.var_mean(x, -1), (40, 700))
add("var_mean_long", lambda x: torch.var_mean(x, -1), (3, 9000))
add("count_nonzero", lambda x: torch.count_nonzero(x > 0, -1), ROWS)
add("nanmean", lambda x: torch.nanmean(torch.where(x > 1, float("nan"), x), -1), ROWS)
add("sum_int", lambda x: x.sum(-1), lambda i: (i.ints(-99, 99, *ROWS),))
add("sum_int32", lambda x: x.sum(-1), lambda i: (i.ints(-99, 99, *ROWS, dtype=torch.int32),))
add("sum_bfloat16", lambda x: x.sum(-1), lambda i: (i.normal(*ROWS, dtype=torch.bfloat16),))
add("mean_float16", lambda x: x.mean(0), lambda i: (i.normal(*ROWS, dtype=torch.float16),))
add("norm_rows", lambda x: torch.linalg.vector_norm(x, dim=-1), ROWS)
add("norm_1", lambda x: torch.linalg.vector_norm(x, 1, dim=-1), ROWS)
add("cosine_similarity", F.cosine_similarity, lambda i: (i.normal(*ROWS), i.normal(*ROWS)))
add("softmax", lambda x: x.softmax(-1), lambda i: (i.normal(*ROWS, grad=True),), grads=True)
add("softmax_columns", lambda x: x.softmax(0), (300, 17))
add("softmax_long", lambda x: x.softmax(-1), (4, 9000))
add("log_softmax", lambda x: x.log_softmax(-1), lambda i: (i.normal(*ROWS, grad=True),), grads=True)
add("softmax_bfloat16", lambda x: x.softmax(-1), lambda i: (i.normal(*ROWS, dtype=torch.bfloat16),))
add("layer_norm", lambda x, w, b: F.layer_norm(x, (129,), w, b),
    lambda i: (i.normal(*ROWS, grad=True), i.normal(129, grad=True), i.normal(129, grad=True)),
    grads=True)  # fmt: skip
add("layer_norm_long", lambda x: F.layer_norm(x, (5000,)), (6, 5000))
add("rms_norm", lambda x, w: F.rms_norm(x, (129,), w),
    lambda i: (i.normal(*ROWS, grad=True), i.normal(129, grad=True)), grads=True)  # fmt: skip
add("group_norm", lambda x: F.group_norm(x, 3), (4, 12, 7, 5))
add("batch_norm", lambda x, m, v: F.batch_norm(x, m, v, training=True),
    lambda i: (i.normal(8, 5, 7, 7), i.normal(5), i.between(1.0, 2.0, 5)))  # fmt: skip
add("instance_norm", F.instance_norm, (4, 5, 9, 9))
add("cross_entropy", F.cross_entropy,
    lambda i: (i.normal(33, 50, grad=True), i.ints(0, 50, 33)), grads=True)  # fmt: skip
add("nll_loss_ignore", lambda x, y: F.nll_loss(x, y, ignore_index=3),
    lambda i: (i.normal(33, 9), i.ints(0, 9, 33)))  # fmt: skip
add("mse_loss", F.mse_loss, lambda i: (i.normal(*ROWS), i.normal(*ROWS)))
add("smooth_l1_loss", F.smooth_l1_loss, lambda i: (i.normal(*ROWS), i.normal(*ROWS)))
add("kl_div", lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    lambda i: (i.normal(*ROWS), i.normal(*ROWS)))  # fmt: skip
add("bce_with_logits", F.binary_cross_entropy_with_logits,
    lambda i: (i.normal(*ROWS), i.between(0.0, 1.0, *ROWS)))  # fmt: skip
add("huber_loss", F.huber_loss, lambda i: (i.normal(*ROWS), i.normal(*ROWS)))
add("two_reductions", lambda x: (x.sum(-1), (x - x.mean(-1, keepdim=True)).abs().amax(-1)), ROWS)
add("reduction_then_pointwise", lambda x: torch.exp(x - x.amax(-1, keepdim=True)) * 2, ROWS)

# ---- scans and sorting ------------------------------------------------------------------------

add("cumsum", lambda x: x.cumsum(-1), ROWS)
add("cumsum_columns", lambda x: x.cumsum(0), (300, 17))
add("cumsum_int", lambda x: x.cumsum(-1), lambda i: (i.ints(-9, 9, *ROWS),))
add("cumsum_long", lambda x: x.cumsum(0), (9000,), tolerance=1e-3)
add("cumprod", lambda x: x.cumprod(-1), lambda i: (i.between(0.9, 1.1, *ROWS),))
add("logcumsumexp", lambda x: x.logcumsumexp(-1), ROWS)
add("cummax", lambda x: x.cummax(-1), ROWS)
add("cummin", lambda x: x.cummin(-1), ROWS)
add("cumsum_of_exp", lambda x: (x.exp().cumsum(-1) + 1).log(), ROWS)
add("sort", lambda x: x.sort(-1), (20, 60))
add("sort_stable_descending", lambda x: x.sort(dim=-1, descending=True, stable=True),
    lambda i: (i.ints(0, 9, 20, 60),))  # fmt: skip
add("argsort", lambda x: x.argsort(dim=-1, stable=True), (20, 60))
add("msort", torch.msort, (60, 20))
add("sort_nan", lambda x: x.sort(dim=-1, stable=True), lambda i: (i.special(20, 60),))
add("topk", lambda x: x.topk(5), ROWS)
add("median", lambda x: x.median(-1), (20, 61))
add("kthvalue", lambda x: x.kthvalue(7, -1), (20, 61))
add("sort_of_sum", lambda x: (x + x.sum(-1, keepdim=True)).sort(-1).values * 2, (20, 60))

# ---- indexing and moving ----------------------------------------------------------------------

add("index", lambda x, i: x[i], lambda i: (i.normal(*ROWS), i.ints(0, 33, 50)))
add("index_negative", lambda x, i: x[i], lambda i: (i.normal(*ROWS), i.ints(-33, 33, 50)))
add("index_two", lambda x, i, j: x[i, j],
    lambda i: (i.normal(*ROWS), i.ints(0, 33, 50), i.ints(0, 129, 50)))  # fmt: skip
add(
    "index_select",
    lambda x, i: x.index_select(1, i),
    lambda i: (i.normal(*ROWS), i.ints(0, 129, 9)),
)
add("gather", lambda x, i: x.gather(1, i), lambda i: (i.normal(*ROWS), i.ints(0, 129, 33, 20)))
add("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1),
    lambda i: (i.normal(*ROWS), i.ints(0, 129, 33, 20)))  # fmt: skip
add("scatter", lambda x, i, y: x.scatter(0, i, y),
    lambda i: (i.normal(9, 20), i.normal(9, 20).argsort(0), i.normal(9, 20)))  # fmt: skip
add("scatter_add", lambda x, i, y: x.scatter_add(0, i, y),
    lambda i: (i.normal(9, 20), i.ints(0, 9, 30, 20), i.normal(30, 20)))  # fmt: skip
add("scatter_reduce", lambda x, i, y: x.scatter_reduce(0, i, y, "amax"),
    lambda i: (i.normal(9, 20), i.ints(0, 9, 30, 20), i.normal(30, 20)))  # fmt: skip
add("index_add", lambda x, i, y: x.index_add(0, i, y),
    lambda i: (i.normal(9, 20), i.ints(0, 9, 30), i.normal(30, 20)))  # fmt: skip
add("index_put_accumulate", lambda x, i, y: x.index_put((i,), y, accumulate=True),
    lambda i: (i.normal(9, 20), i.ints(0, 9, 30), i.normal(30, 20)))  # fmt: skip
add(
    "index_fill", lambda x, i: x.index_fill(0, i, 7.0), lambda i: (i.normal(9, 20), i.ints(0, 9, 4))
)
add("embedding", F.embedding, lambda i: (i.ints(0, 30, 8, 5), i.normal(30, 16)))
add("embedding_gradient", lambda w, i: F.embedding(i, w),
    lambda i: (i.normal(30, 16, grad=True), i.ints(0, 30, 8, 5)), grads=True)  # fmt: skip
add("embedding_bag", lambda i, w: F.embedding_bag(i, w, mode="sum"),
    lambda i: (i.ints(0, 30, 8, 5), i.normal(30, 16)))  # fmt: skip
add("one_hot", lambda i: F.one_hot(i, 9), lambda i: (i.ints(0, 9, 40),))
add("masked_fill", lambda x, m: x.masked_fill(m, -1.0), lambda i: (i.normal(*ROWS), i.bools(*ROWS)))
add("bucketize", torch.bucketize,
    lambda i: (i.normal(200), i.normal(20).sort().values))  # fmt: skip
add("searchsorted", lambda b, x: torch.searchsorted(b, x, right=True),
    lambda i: (i.normal(9, 20).sort(-1).values, i.normal(9, 30)))  # fmt: skip
add("flip", lambda x: x.flip(-1), ROWS)
add("roll", lambda x: x.roll(3, -1), ROWS)
add("pad_constant", lambda x: F.pad(x, (2, 3, 1, 0), value=0.5), ROWS)
add("pad_reflect", lambda x: F.pad(x, (2, 3), mode="reflect"), (4, 5, 20))
add("pad_replicate", lambda x: F.pad(x, (2, 3), mode="replicate"), (4, 5, 20))
add("pad_circular", lambda x: F.pad(x, (2, 3), mode="circular"), (4, 5, 20))
add("cat", lambda x, y: torch.cat([x, y * 2], 1), lambda i: (i.normal(20, 5), i.normal(20, 9)))
add(
    "stack", lambda x, y: torch.stack([x, y.exp()], 1), lambda i: (i.normal(20, 5), i.normal(20, 5))
)
add("slices", lambda x: x[2:30:3, 5:-7] * 2, ROWS)
add("slice_scatter", lambda x, y: x.slice_scatter(y, 1, 3, 8),
    lambda i: (i.normal(20, 30), i.normal(20, 5)))  # fmt: skip
add("select_scatter", lambda x, y: x.select_scatter(y, 0, 4),
    lambda i: (i.normal(20, 30), i.normal(30)))  # fmt: skip
add("transpose", lambda x: x.t().contiguous() + 1, (70, 90))
add("permute", lambda x: x.permute(2, 0, 1).contiguous() * 2, (6, 17, 23))
add("transposed_sum", lambda x, y: x + y.t(), lambda i: (i.normal(70, 90), i.normal(90, 70)))
add("expand", lambda x: x.expand(20, 30).contiguous(), (20, 1))
add("repeat", lambda x: x.repeat(2, 3), (7, 9))
add("repeat_interleave", lambda x: x.repeat_interleave(3, 1), (7, 9))
add("tril", lambda x: x.tril(2), (33, 33))
add("triu", torch.triu, (33, 47))
add("diag_embed", torch.diag_embed, (4, 9))
add("diagonal", lambda x: x.diagonal(1, 0, 1) * 2, (9, 12))
add("unfold", lambda x: x.unfold(-1, 4, 2) + 1, (5, 20))
add("meshgrid", lambda x, y: sum(torch.meshgrid(x, y, indexing="ij")),
    lambda i: (i.normal(9), i.normal(12)))  # fmt: skip
add("in_place", lambda x: x.clone().add_(1).mul_(2), ROWS)
add("as_strided", lambda x: x.as_strided((9, 5), (7, 2)) + 1, (90,))
add("trapezoid", torch.trapezoid, (20, 30))
add("diff", torch.diff, (20, 30))
add("vander", lambda x: torch.vander(x, 5), lambda i: (i.between(0.1, 1.5, 20),))
add("unbind", lambda x: [row * 2 for row in x.unbind(0)], (4, 30))
add("split", lambda x: [part.sum(-1) for part in x.split([3, 4, 5], -1)], (20, 12))

# ---- random numbers, as eager mode draws them -------------------------------------------------

SAME_RANDOM = (("fallback_random", True),)
add("rand", lambda x: torch.rand_like(x) + x, ROWS, options=SAME_RANDOM)
add("randn", lambda x: torch.randn_like(x) * x, ROWS, options=SAME_RANDOM)
add("randint", lambda x: torch.randint(0, 9, x.shape, device=x.device), ROWS, options=SAME_RANDOM)
add("dropout", lambda x: F.dropout(x, 0.4), ROWS, options=SAME_RANDOM)
# How often each element is 1: which draws it is PyTorch and Inductor take from different numbers.
add("bernoulli", lambda x: torch.bernoulli(x.sigmoid().expand(4096, *x.shape)).mean(0),
    lambda i: (i.normal(9, 33),), tolerance=0.06)  # fmt: skip

# ---- images -----------------------------------------------------------------------------------

IMAGE = (2, 3, 17, 19)
add("max_pool", lambda x: F.max_pool2d(x, 3, 2), IMAGE)
add("max_pool_gradient", lambda x: F.max_pool2d(x, 2),
    lambda i: (i.normal(2, 3, 16, 16, grad=True),), grads=True)  # fmt: skip
add("avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE)
add("avg_pool_gradient", lambda x: F.avg_pool2d(x, 2),
    lambda i: (i.normal(2, 3, 16, 16, grad=True),), grads=True)  # fmt: skip
add("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, (5, 4)), IMAGE)
add("adaptive_max_pool", lambda x: F.adaptive_max_pool2d(x, (4, 4)), (2, 3, 16, 16))
add("upsample_nearest", lambda x: F.interpolate(x, scale_factor=2), IMAGE)
add(
    "upsample_bilinear",
    lambda x: F.interpolate(x, size=(30, 20), mode="bilinear", align_corners=False),
    IMAGE,
)
add("upsample_bicubic", lambda x: F.interpolate(x, size=(30, 20), mode="bicubic"), IMAGE)
add("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False),
    lambda i: (i.normal(*IMAGE), i.between(-1.2, 1.2, 2, 9, 8, 2)))  # fmt: skip
add("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (2, 8, 5, 6))
add("local_response_norm", lambda x: F.local_response_norm(x, 3), IMAGE)
add("im2col", lambda x: F.unfold(x, 3), IMAGE)

# ---- products ---------------------------------------------------------------------------------

add("mm", torch.mm, lambda i: (i.normal(70, 40), i.normal(40, 50)), templates=True, tolerance=1e-3)
add("mm_transposed", lambda x, y: x @ y.t(), lambda i: (i.normal(70, 40), i.normal(50, 40)),
    templates=True, tolerance=1e-3)  # fmt: skip
add("mm_relu", lambda x, y: (x @ y).relu(), lambda i: (i.normal(70, 40), i.normal(40, 50)),
    templates=True, tolerance=1e-3)  # fmt: skip
add("mm_float16", torch.mm,
    lambda i: (i.normal(64, 32, dtype=torch.float16), i.normal(32, 64, dtype=torch.float16)),
    templates=True, tolerance=2e-2)  # fmt: skip
add("mm_bfloat16", torch.mm,
    lambda i: (i.normal(64, 32, dtype=torch.bfloat16), i.normal(32, 64, dtype=torch.bfloat16)),
    templates=True, tolerance=1e-1)  # fmt: skip
add(
    "bmm",
    torch.bmm,
    lambda i: (i.normal(4, 33, 20), i.normal(4, 20, 17)),
    templates=True,
    tolerance=1e-3,
)
add("addmm", torch.addmm, lambda i: (i.normal(50), i.normal(70, 40), i.normal(40, 50)),
    templates=True, tolerance=1e-3)  # fmt: skip
add(
    "baddbmm",
    torch.baddbmm,
    lambda i: (i.normal(4, 33, 17), i.normal(4, 33, 20), i.normal(4, 20, 17)),
    templates=True,
    tolerance=1e-3,
)
add("linear_gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)),
    lambda i: (i.normal(33, 40, grad=True), i.normal(50, 40, grad=True), i.normal(50, grad=True)),
    grads=True, tolerance=1e-3)  # fmt: skip
add("linear_row", F.linear, lambda i: (i.normal(1, 128), i.normal(64, 128)),
    tolerance=1e-3)  # fmt: skip
add("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y),
    lambda i: (i.normal(3, 20, 30), i.normal(3, 25, 30)), tolerance=1e-3)  # fmt: skip
add("matrix_vector", lambda x, y: x @ y, lambda i: (i.normal(70, 40), i.normal(40)), tolerance=1e-3)
add("conv1d", lambda x, w: F.conv1d(x, w, padding=1),
    lambda i: (i.normal(2, 3, 50), i.normal(4, 3, 3)), tolerance=1e-3)  # fmt: skip
add("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(),
    lambda i: (i.normal(*IMAGE), i.normal(8, 3, 3, 3), i.normal(8)),
    tolerance=1e-3)  # fmt: skip
add("conv2d_stride", lambda x, w: F.conv2d(x, w, stride=2),
    lambda i: (i.normal(*IMAGE), i.normal(8, 3, 3, 3)), templates=True, tolerance=1e-3)  # fmt: skip
add("conv2d_1x1", F.conv2d, lambda i: (i.normal(2, 16, 9, 9), i.normal(8, 16, 1, 1)),
    templates=True, tolerance=1e-3)  # fmt: skip
add("conv2d_depthwise", lambda x, w: F.conv2d(x, w, groups=3),
    lambda i: (i.normal(*IMAGE), i.normal(3, 1, 3, 3)), tolerance=1e-3)  # fmt: skip
add("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2),
    lambda i: (i.normal(*IMAGE), i.normal(3, 4, 3, 3)), tolerance=1e-3)  # fmt: skip
add("conv3d", F.conv3d, lambda i: (i.normal(1, 2, 6, 7, 8), i.normal(3, 2, 3, 3, 3)),
    tolerance=1e-3)  # fmt: skip
add("attention", F.scaled_dot_product_attention,
    lambda i: tuple(i.normal(2, 3, 20, 16, grad=True) for _ in range(3)), grads=True,
    tolerance=1e-3)  # fmt: skip
add("attention_by_hand", lambda q, k, v: ((q @ k.mT) * 0.25).softmax(-1) @ v,
    lambda i: tuple(i.normal(2, 3, 20, 16, grad=True) for _ in range(3)), grads=True,
    tolerance=1e-3)  # fmt: skip
add("cdist", torch.cdist, lambda i: (i.normal(20, 9), i.normal(30, 9)), tolerance=1e-3)

# ---- several at a time ------------------------------------------------------------------------

add("foreach_add", lambda *xs: torch._foreach_add(list(xs), 1.5),
    lambda i: tuple(i.normal(n) for n in (5, 70, 300)))  # fmt: skip
add("foreach_addcmul", lambda *xs: torch._foreach_addcmul(list(xs), list(xs), list(xs)),
    lambda i: tuple(i.normal(n) for n in (5, 70, 300)))  # fmt: skip
add("long_chain", lambda x: (((x * 2 + 1).sin() - 0.5).exp() / 3).tanh().sum(-1), ROWS)
add("mask_and_sum", lambda x, m: (x.masked_fill(m, 0.0).sum(-1), (~m).sum(-1)),
    lambda i: (i.normal(*ROWS), i.bools(*ROWS)))  # fmt: skip
add("rotary", lambda x, c, s: x * c + torch.cat([-x[..., 16:], x[..., :16]], -1) * s,
    lambda i: (i.normal(2, 4, 20, 32), i.normal(20, 32), i.normal(20, 32)))  # fmt: skip
add("quantize", lambda x: (x / (x.abs().amax(-1, keepdim=True) / 127)).round().to(torch.int8), ROWS)
add("polynomial", lambda x: ((x * 0.1 + 0.2) * x + 0.3) * x + 0.4, ROWS)
add("adam_step", lambda p, g, m, v: (
        p - 0.01 * (m.lerp(g, 0.1) / 0.1) / ((v * 0.99 + g * g * 0.01) / 0.01).sqrt().add(1e-8)),
    lambda i: (i.normal(300), i.normal(300), i.normal(300), i.between(0.1, 1.0, 300)))  # fmt: skip

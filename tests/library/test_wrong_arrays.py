"""What every public function of the library says of arrays that it cannot take."""

import inspect

import pytest

from tilewright import kernels

torch = pytest.importorskip("torch")


def ones(*shape):
    return torch.ones(shape)


def whole(*numbers):
    return torch.tensor(numbers)


def int32(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


SPARSITY = kernels.BlockSparsity(torch.ones((1, 2, 2), dtype=torch.bool), 16)
QKV = {name: ones(1, 2, 4, 8) for name in ("query", "key", "value")}
IMAGES = ones(2, 3, 4, 4)
GRU = [ones(9, 2), ones(9, 3), ones(9), ones(9)]
LSTM = [ones(12, 2), ones(12, 3), ones(12), ones(12)]
PACKED = dict(
    zip(
        ("packed", "scales", "zero_points"),
        kernels.quantize_weight(ones(4, 32), group=32, zero_points=True),
        strict=True,
    )
)
HALVES = dict(zip(("values", "places"), kernels.compress_semi_sparse(ones(4, 32)), strict=True))
CACHE = {"key_cache": ones(2, 2, 6, 8), "value_cache": ones(2, 2, 6, 8), "lengths": int32(6, 6)}
PAGES = {"key_cache": ones(4, 16, 2, 8), "value_cache": ones(4, 16, 2, 8), "lengths": int32(6, 6)}
CSR = {"crow_indices": whole(0, 1, 2), "col_indices": whole(0, 1)}
NORM = {"weight": ones(4), "bias": ones(4)}

# Arguments that each function takes; all arrays among them are tried one by one.
CALLS = {
    "GRU": {"input": ones(3, 2, 2), "hx": ones(1, 2, 3)},
    "LSTM": {"input": ones(3, 2, 2)},
    "BlockSparsity": {"layout": torch.ones((2, 2), dtype=torch.bool), "size": 16},
    "adaptive_avg_pool1d": {"input": ones(1, 2, 8), "output_size": 2},
    "adaptive_avg_pool2d": {"input": IMAGES, "output_size": 2},
    "adaptive_max_pool1d": {"input": ones(1, 2, 8), "output_size": 2},
    "adaptive_max_pool2d": {"input": IMAGES, "output_size": 2},
    "add_layer_norm": {"input": ones(2, 4), "residual": ones(2, 4), "normalized_shape": 4, **NORM},
    "add_rms_norm": {
        "input": ones(2, 4),
        "residual": ones(2, 4),
        "normalized_shape": 4,
        "weight": ones(4),
    },
    "attention": {
        **QKV,
        "attn_mask": ones(4, 4),
        "key_lengths": int32(4),
        "alibi_slopes": ones(2),
    },
    "avg_pool1d": {"input": ones(1, 2, 8), "kernel_size": 2},
    "avg_pool2d": {"input": IMAGES, "kernel_size": 2},
    "batch_norm": {
        "input": ones(2, 4, 3),
        "running_mean": ones(4),
        "running_var": ones(4),
        **NORM,
        "training": True,
    },
    "block_sparse_attention": {
        **{name: ones(1, 1, 32, 8) for name in QKV},
        "sparsity": SPARSITY,
        "key_lengths": int32(4),
    },
    "block_sparse_softmax": {"values": ones(1, 4, 16, 16), "sparsity": SPARSITY},
    "causal_conv1d": {"input": ones(1, 2, 8), "weight": ones(2, 3), "bias": ones(2)},
    "cholesky": {"A": torch.eye(3)},
    "compress_semi_sparse": {"weight": ones(4, 32)},
    "conv1d": {"input": ones(1, 2, 8), "weight": ones(4, 2, 3), "bias": ones(4)},
    "conv2d": {"input": ones(1, 2, 8, 8), "weight": ones(4, 2, 3, 3), "bias": ones(4)},
    "coo_to_csr": {
        "row_indices": whole(1, 0),
        "col_indices": whole(0, 1),
        "values": ones(2),
        "rows": 2,
    },
    "cross_entropy": {"input": ones(2, 4), "target": whole(1, 2), "weight": ones(4)},
    "cumsum": {"input": ones(2, 3), "dim": 0},
    "dds_matmul": {"a": ones(1, 1, 8, 32), "values": ones(1, 4, 16, 16), "sparsity": SPARSITY},
    "decode_attention": {"query": ones(2, 2, 8), **CACHE, "alibi_slopes": ones(2)},
    "dequantize_weight": PACKED,
    "dropout": {"input": ones(2, 3), "seed": 1},
    "dsd_matmul": {"values": ones(1, 4, 16, 16), "b": ones(1, 1, 32, 8), "sparsity": SPARSITY},
    "embedding": {"input": whole(0, 1), "weight": ones(3, 4)},
    "expand_semi_sparse": HALVES,
    "geglu": {"gate": ones(2, 4), "up": ones(2, 4)},
    "gelu": {"input": ones(2, 4)},
    "group_norm": {"input": ones(2, 4, 3), "num_groups": 2, **NORM},
    "grouped_mm": {"mat_a": ones(4, 8), "mat_b": ones(2, 8, 16), "offs": int32(2, 4)},
    "gru": {"input": ones(3, 2, 2), "hx": ones(1, 2, 3), "params": GRU, "lengths": whole(3, 2)},
    "histc": {"input": ones(4)},
    "instance_norm": {
        "input": ones(2, 4, 3),
        "running_mean": ones(4),
        "running_var": ones(4),
        **NORM,
    },
    "layer_norm": {"input": ones(2, 4), "normalized_shape": 4, **NORM},
    "linear": {
        "input": ones(2, 4),
        "weight": ones(3, 4),
        "bias": ones(3),
        "residual": ones(2, 3),
    },
    "linear_cross_entropy": {
        "input": ones(2, 4),
        "linear_weight": ones(3, 4),
        "target": whole(1, 2),
        "linear_bias": ones(3),
        "weight": ones(3),
    },
    "linear_recurrence": {"a": ones(2, 3, 4), "b": ones(2, 3, 4), "initial": ones(2, 4)},
    "log_softmax": {"input": ones(2, 4)},
    "lstm": {"input": ones(3, 2, 2), "hx": None, "params": LSTM, "lengths": whole(3, 2)},
    "matmul": {
        "input": ones(2, 4),
        "other": ones(4, 3),
        "bias": ones(3),
        "residual": ones(2, 3),
    },
    "max_pool1d": {"input": ones(1, 2, 8), "kernel_size": 2},
    "max_pool2d": {"input": IMAGES, "kernel_size": 2},
    "pack_weight": {"codes": torch.zeros((64, 64), dtype=torch.uint8)},
    "paged_attention": {"query": ones(2, 2, 8), **PAGES, "block_table": int32(0, 1).view(2, 1)},
    "quantize_rows": {"input": ones(2, 4)},
    "quantize_weight": {"weight": ones(4, 32), "group": 32},
    "quantized_linear": {"input": ones(2, 32), **PACKED, "bias": ones(4)},
    "relu": {"input": ones(2, 4)},
    "rms_norm": {"input": ones(2, 4), "normalized_shape": 4, "weight": ones(4)},
    "rotary_embedding": {"input": ones(1, 2, 3, 4), "cos": ones(3, 2), "sin": ones(3, 2)},
    "scaled_mm": {
        "mat_a": ones(4, 16).to(torch.int8),
        "mat_b": ones(16, 8).to(torch.int8),
        "scale_a": ones(4, 1),
        "scale_b": ones(1, 8),
        "bias": ones(8),
    },
    "sdd_matmul": {"a": ones(1, 1, 32, 8), "b": ones(1, 1, 8, 32), "sparsity": SPARSITY},
    "sddmm": {**CSR, "a": ones(2, 4), "b": ones(4, 2)},
    "segment_reduce": {"data": ones(4, 2), "reduce": "sum", "lengths": whole(1, 3)},
    "semi_sparse_linear": {"input": ones(2, 32), **HALVES, "bias": ones(4)},
    "silu": {"input": ones(2, 4)},
    "softmax": {"input": ones(2, 4)},
    "solve_triangular": {"A": torch.eye(3), "B": ones(3, 2), "upper": True},
    "spmm": {**CSR, "values": ones(2), "b": ones(2, 4)},
    "swiglu": {"gate": ones(2, 4), "up": ones(2, 4)},
    "topk": {"input": ones(2, 4), "k": 2},
    "varlen_attention": {
        **{name: ones(4, 2, 8) for name in QKV},
        "cu_seq_q": int32(0, 4),
        "cu_seq_k": int32(0, 4),
        "max_q": 4,
        "max_k": 4,
        "alibi_slopes": ones(2),
    },
}
MODULES = {"GRU": lambda: kernels.GRU(2, 3), "LSTM": lambda: kernels.LSTM(2, 3)}


# Arguments that may have a dimension more, such as another one of samples; or none at all.
ONE_MORE = {
    "BlockSparsity.layout",
    "adaptive_avg_pool1d.input",
    "adaptive_avg_pool2d.input",
    "adaptive_max_pool1d.input",
    "adaptive_max_pool2d.input",
    "attention.alibi_slopes",
    "attention.attn_mask",
    "avg_pool1d.input",
    "avg_pool2d.input",
    "cholesky.A",
    "cumsum.input",
    "decode_attention.alibi_slopes",
    "dropout.input",
    "embedding.input",
    "gelu.input",
    "histc.input",
    "layer_norm.input",
    "linear.input",
    "log_softmax.input",
    "matmul.input",
    "matmul.other",
    "max_pool1d.input",
    "max_pool2d.input",
    "quantized_linear.input",
    "relu.input",
    "rms_norm.input",
    "rotary_embedding.input",
    "segment_reduce.data",
    "semi_sparse_linear.input",
    "silu.input",
    "softmax.input",
    "solve_triangular.A",
    "solve_triangular.B",
    "topk.input",
    "varlen_attention.alibi_slopes",
}
NO_DIMENSION = {
    "attention.alibi_slopes",
    "attention.attn_mask",
    "decode_attention.alibi_slopes",
    "dropout.input",
    "embedding.input",
    "gelu.input",
    "histc.input",
    "linear.residual",
    "matmul.residual",
    "relu.input",
    "scaled_mm.scale_a",
    "scaled_mm.scale_b",
    "silu.input",
    "varlen_attention.alibi_slopes",
}


def function_named(name):
    return MODULES[name]() if name in MODULES else getattr(kernels, name)


def arrays_of(name):
    return [key for key, value in CALLS[name].items() if isinstance(value, torch.Tensor)]


def refusal(function, arguments):
    """What a call raises, as text; None where it returns."""
    try:
        function(**arguments)
    except (TypeError, ValueError, IndexError) as error:
        return str(error)
    return None


def test_every_function_is_called():
    functions = [name for name in kernels.__all__ if callable(getattr(kernels, name))]
    assert set(CALLS) == set(functions)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_array_is_refused_by_name(name):
    function, call = function_named(name), CALLS[name]
    function(**call)
    for key in arrays_of(name):
        for wrong in ("text", [1.0, 2.0]):
            said = refusal(function, {**call, key: wrong})
            assert said is not None, (key, wrong)
            assert f"`{key}`" in said, (key, wrong)


@pytest.mark.parametrize("name", CALLS)
def test_none_is_refused_by_name_unless_it_is_a_choice(name):
    function, call = function_named(name), CALLS[name]
    parameters = inspect.signature(getattr(function, "forward", function)).parameters
    for key in arrays_of(name):
        said = refusal(function, {**call, key: None})
        if said is None:
            assert key in {"hx", "running_mean"} or parameters[key].default is None
        else:
            assert f"`{key}`" in said, key


@pytest.mark.parametrize("name", CALLS)
def test_elements_of_another_kind_are_refused_by_name(name):
    function, call = function_named(name), CALLS[name]
    for key in arrays_of(name):
        x = call[key]
        swapped = torch.int64 if x.is_floating_point() else torch.float32
        for dtype in (torch.complex64, swapped):
            said = refusal(function, {**call, key: x.to(dtype)})
            assert said is not None, (key, dtype)
            assert f"`{key}`" in said, (key, dtype)


@pytest.mark.parametrize("name", CALLS)
def test_shapes_that_do_not_fit_are_refused_by_name(name):
    function, call = function_named(name), CALLS[name]
    for key in arrays_of(name):
        x = call[key]
        for shape, wrong in (("more", x[None]), ("none", x.reshape(-1)[0])):
            said = refusal(function, {**call, key: wrong})
            if said is None:
                assert f"{name}.{key}" in (ONE_MORE if shape == "more" else NO_DIMENSION), key
            else:
                assert any(f"`{known}`" in said for known in (*call, "dim")), (key, shape, said)

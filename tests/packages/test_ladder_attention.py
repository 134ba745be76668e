"""Attention of published packages, beside PyTorch's."""

import sys
import types

import pytest

from tests.packages.ladder import attention, close, torch

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("on_device"),
]


@pytest.mark.ladder(28)
def test_flash_attention_of_one_head(package):
    q, k, v = torch.randn(3, 256, 64, dtype=torch.float16)
    found = package("kernels.flash_attention").flash_attention_triton(q, k, v)
    close(found, attention(q.float(), k.float(), v.float()), 2e-3)


@pytest.mark.ladder(33)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_block_pointers(package, monkeypatch, causal):
    # The package imports a module that newer Tritons lack, and uses nothing of it.
    absent = "triton.tools.experimental_descriptor"
    monkeypatch.setitem(sys.modules, absent, types.ModuleType(absent))
    module = package("flash_attn_triton.triton_kernel.attention_kernel")
    monkeypatch.setattr(module._attn_fwd, "configs", module._attn_fwd.configs[:1])
    mine = [torch.randn(1, 2, 256, 64).half().mul(0.5).requires_grad_() for _ in range(3)]
    theirs = [x.detach().float().requires_grad_() for x in mine]
    weights = torch.randn(1, 2, 256, 64)
    out = module.attention(*mine, causal, 0.5)
    expected = attention(*theirs, causal=causal, scale=0.5)
    close(out, expected, 1e-2)
    if causal:
        (out.float() * weights).sum().backward()
        (expected * weights).sum().backward()
        for x, y in zip(mine, theirs, strict=True):
            close(x.grad, y.grad, 4e-2)


@pytest.mark.ladder(29)
def test_attention_made_in_a_closure(package, as_on_a_gpu):
    module = package("flash_attention_triton.flash_attention_2")
    mine = [torch.randn(1, 2, 128, 64).half().requires_grad_() for _ in range(3)]
    theirs = [x.detach().float().requires_grad_() for x in mine]
    weights = torch.randn(1, 2, 128, 64)
    triton = sys.modules["triton"]
    names = {"BLOCK_Q_ROWS_SIZE": 64, "BLOCK_KV_COLS_SIZE": 64}
    hook = module.init_to_zero_v2("DQ")
    configs = [
        triton.Config({**names, "SEQUENCE_PARALLEL": parallel}, num_warps=4, pre_hook=hook)
        for parallel in (False, True)
    ]
    config = module.KernelsConfigV2(64, 64, 16, 128, 32, 4, 8, 1, configs)
    out = module.FlashAttentionV2Function.apply(*mine, None, config)
    expected = attention(*theirs, causal=True)
    close(out, expected, 1e-2)
    (out.float() * weights).sum().backward()
    (expected * weights).sum().backward()
    for x, y in zip(mine, theirs, strict=True):
        close(x.grad, y.grad, 3e-2)


@pytest.fixture
def blocks():
    """Queries, keys and values in blocks, a table of the blocks of each sequence, and lengths."""
    q = torch.randn(3, 8, 64).half()
    keys, values = torch.randn(2, 24, 16, 2, 64).half()
    table = torch.randperm(24)[:15].view(3, 5).int()
    return q, keys, values, table, torch.tensor([3, 40, 70], dtype=torch.int32)


def gathered(q, keys, values, table, length, *, causal=True):
    """Attention of one sequence, whose queries are its last, over keys from their blocks."""
    k, v = (x[table.long()].flatten(0, 1)[:length].float() for x in (keys, values))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1).transpose(0, 1) for x in (k, v))
    queries = q.float().transpose(0, 1)
    scores = queries @ k.mT / q.shape[-1] ** 0.5
    if causal:
        places = torch.arange(length)
        scores.masked_fill_(places > places[length - len(q) :, None], -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1)


@pytest.mark.ladder(35)
@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_attention_of_one_query_over_blocks(package, blocks, kind):
    q, keys, values, table, lengths = blocks
    scales = {}
    if kind == "fp8":
        keys, values = (x.to(torch.float8_e4m3fn) for x in (keys, values))
        scales = {"k_scale": torch.full((1,), 0.5), "v_scale": torch.full((1,), 2.0)}
    paged = package("conch.ops.attention.paged_attention").paged_attention
    found = paged(q, keys, values, table, lengths, scale=0.125, kv_cache_dtype=kind, **scales)
    if kind == "fp8":
        keys, values = keys.float() * 0.5, values.float() * 2.0
    for sequence, length in enumerate(lengths):
        one = gathered(q[sequence][None], keys, values, table[sequence], int(length))
        close(found[sequence], one[0], 5e-3)


@pytest.mark.ladder(35)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_sequences_over_blocks(package, blocks, causal):
    _, keys, values, table, lengths = blocks
    # Where a sequence has more keys than queries, the package counts from the first ones.
    counts = [1, 40, 70]
    q = torch.randn(sum(counts), 8, 64).half()
    first = torch.tensor([0, 1, 41, 111], dtype=torch.int32)
    varlen = package("conch.ops.attention.varlen_attention").varlen_attention
    found = varlen(q, keys, values, first, 70, lengths, 70, table, causal=causal, scale=0.125)
    unified = package("conch.third_party.vllm.unified_attention").unified_attention
    other = torch.empty_like(q)
    if causal:
        unified(
            *(q, keys, values, other, first, 70, lengths, 70, 0.125, causal),
            *((-1, -1), table, 0.0, None, None, None),
        )
    for sequence, (start, count) in enumerate(zip(first, counts, strict=False)):
        part = slice(start, start + count)
        expected = gathered(
            q[part], keys, values, table[sequence], int(lengths[sequence]), causal=causal
        )
        close(found[part], expected, 5e-3)
        if causal:
            close(other[part], expected, 5e-3)


@pytest.mark.ladder(42)
def test_split_attention(package, as_on_a_gpu, monkeypatch):
    # Another package of that name may be installed, which is not what this one looks for.
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    absent = "triton.tools.experimental_descriptor"
    monkeypatch.setitem(sys.modules, absent, types.ModuleType(absent))
    fmha = package("xformers.ops.fmha")
    operator = package("xformers.ops.fmha.triton_splitk").FwOp
    q, k, v = torch.randn(2, 1, 4, 64).half(), *torch.randn(2, 2, 200, 4, 64).half()
    found, _ = operator.apply(fmha.Inputs(q, k, v), needs_gradient=False)
    expected = attention(*(x.float().transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
    close(found, expected, 2e-3)

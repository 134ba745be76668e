"""Recurrent layers of published packages: states, scans in chunks, delta rules."""

import pytest

from tests.packages.ladder import F, close, torch

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("on_device"),
]

# GPUs multiply in tf32.
TOLERANCE = {"cpu": 2e-3, "cuda": 3e-2}


@pytest.mark.ladder(32)
def test_linear_attention(package, as_on_a_gpu):
    fused = package("fla.ops.linear_attn.fused_recurrent").fused_recurrent_linear_attn
    naive = package("fla.ops.linear_attn.naive").naive_recurrent_linear_attn
    q, k, v = torch.randn(3, 2, 33, 3, 32)
    found, _ = fused(q, k, v, normalize=False)
    expected, _ = naive(q, k, v, normalize=False)
    close(found, expected, 1e-4)


@pytest.mark.ladder(34)
def test_gated_linear_attention(package, device, as_on_a_gpu):
    chunked = package("fla.ops.gla.chunk").chunk_gla
    naive = package("fla.ops.gla.naive").naive_recurrent_gla
    q, k, v = torch.randn(3, 1, 100, 2, 32)
    gates = F.logsigmoid(torch.randn(1, 100, 2, 32)) / 16
    found, _ = chunked(q, k, v, gates)
    close(found, naive(q, k, v, gates)[0], TOLERANCE[device])


@pytest.mark.ladder(34)
def test_gated_delta_rule(package, device, as_on_a_gpu):
    chunked = package("fla.ops.gated_delta_rule.chunk").chunk_gated_delta_rule
    naive = package("fla.ops.gated_delta_rule.naive").naive_recurrent_gated_delta_rule
    q, k = F.normalize(torch.randn(2, 1, 128, 2, 32), dim=-1)
    v, beta = torch.randn(1, 128, 2, 32), torch.rand(1, 128, 2)
    gates = F.logsigmoid(torch.randn(1, 128, 2))
    found, _ = chunked(q, k, v, g=gates, beta=beta)
    expected = naive(q, k, v, beta=beta, g=gates)[0]
    close(found, expected, TOLERANCE[device])


@pytest.mark.ladder(37)
def test_mlstm(package, device, as_on_a_gpu):
    chunked = package("mlstm_kernels.torch.chunkwise.triton_xl_chunk.fw").mlstm_chunkwise_fw
    native = package("mlstm_kernels.torch.chunkwise.native.fw").mlstm_chunkwise_fw
    q, k, v = torch.randn(3, 1, 2, 128, 64)
    i, f = torch.randn(2, 1, 2, 128)
    found = chunked(q, k, v, i, f + 3, chunk_size=64)[0]
    expected = native(q, k, v, i, f + 3, chunk_size=64)[0]
    close(found, expected, TOLERANCE[device])


@pytest.mark.ladder(9)
def test_states_of_convolutions(source, as_on_a_gpu):
    module = source("causal_conv1d-1.7.0", "causal_conv1d.causal_conv1d_varlen")
    x, ends = torch.randn(40, 50), torch.tensor([0, 7, 9, 40], dtype=torch.int32)
    found = module.causal_conv1d_varlen_states(x, ends, 5)
    close(found, module.causal_conv1d_varlen_states_ref(x, ends, 5), 0)


@pytest.mark.ladder(30)
def test_update_of_a_state(source, as_on_a_gpu):
    module = source("mamba_ssm-2.3.2.post1", "mamba_ssm.ops.triton.selective_state_update")
    state, x, dt = torch.randn(2, 3, 40, 16), torch.randn(2, 3, 40), torch.randn(2, 3, 40)
    a, b, c = -torch.rand(3, 40, 16), torch.randn(2, 1, 16), torch.randn(2, 1, 16)
    others = (torch.randn(3, 40), torch.randn(2, 3, 40), torch.randn(3, 40))
    states = state.clone(), state.clone()
    found = module.selective_state_update(states[0], x, dt, a, b, c, *others, dt_softplus=True)
    expected = module.selective_state_update_ref(
        *(states[1], x, dt, a, b, c), *others, dt_softplus=True
    )
    close(found, expected, 1e-4)
    close(states[0], states[1], 1e-4)


@pytest.mark.ladder(31)
def test_scan_of_chunks(source, device, as_on_a_gpu):
    pytest.importorskip("einops")
    distribution, place = "mamba_ssm-2.3.2.post1", "mamba_ssm.ops.triton"
    cumsum = source(distribution, f"{place}.ssd_chunk_state")
    products = source(distribution, f"{place}.ssd_bmm")
    passing = source(distribution, f"{place}.ssd_state_passing")
    scan = source(distribution, f"{place}.ssd_chunk_scan")
    for kernel in (
        *(cumsum._chunk_cumsum_fwd_kernel, cumsum._chunk_state_fwd_kernel),
        *(products._bmm_chunk_fwd_kernel, scan._chunk_scan_fwd_kernel),
    ):
        kernel.configs = kernel.configs[-1:]
    length, heads, dim, states, chunk = 128, 2, 32, 16, 64
    x, dt = torch.randn(1, length, heads, dim), torch.rand(1, length, heads)
    a, b, c = -torch.rand(heads), *torch.randn(2, 1, length, 1, states)
    sums, steps = cumsum._chunk_cumsum_fwd(dt, a, chunk)
    of_chunks = cumsum._chunk_state_fwd(b, x, steps, sums, states_in_fp32=True)
    close(of_chunks, cumsum.chunk_state_ref(b, x, steps, sums), TOLERANCE[device])
    flat = of_chunks.flatten(-2)
    before, _ = passing._state_passing_fwd(flat, sums[:, :, :, -1])
    before = before.unflatten(-1, (dim, states))
    cb = products._bmm_chunk_fwd(c, b, chunk)
    found = scan._chunk_scan_fwd(cb, x, steps, sums, c, before)[0]
    close(found, scan.chunk_scan_ref(b, c, x, steps, sums, before), TOLERANCE[device])

"""Operations are tested on the CPU, and on a GPU where there is one (`make test-gpu`)."""

import importlib.util
import warnings

import hypothesis
import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["*"]
else:
    import torch

    class TorchRandom:
        """The random numbers of PyTorch, as hypothesis asks for them: each example repeats."""

        seed = staticmethod(torch.manual_seed)
        getstate = staticmethod(torch.get_rng_state)
        setstate = staticmethod(torch.set_rng_state)

    TORCH_RANDOM = TorchRandom()  # hypothesis keeps a weak reference
    hypothesis.register_random(TORCH_RANDOM)


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    if request.param == "cuda":
        # PyTorch warns once that the thread of backward passes has no context for cuBLAS yet.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.ones(2, 2, device="cuda", requires_grad=True)
            (x @ x).sum().backward()
    return request.param


@pytest.fixture(autouse=True, scope="module")
def seed():
    torch.manual_seed(0)

"""The example models learn the same by the library as by plain PyTorch, and then are used."""

import numpy as np
import pytest
import torch

from examples import diffusion_model, language_model
from examples.curves import save_curves, save_pictures

# Orders of summation differ, and each step adds to what the one before has made of it.
TOLERANCE = 2e-2


@pytest.mark.slow
def test_a_language_model_learns_the_same(device):
    sides = {}
    for backend in ("torch", "tilewright"):
        model, losses = language_model.train(backend, steps=8, batch=2, device=device)
        torch.manual_seed(1)
        sides[backend] = losses, model.write(b"A ker", 8)
    (expected, _), (losses, written) = sides.values()
    np.testing.assert_allclose(losses, expected, rtol=TOLERANCE)
    assert losses[-1] < losses[0]
    assert written.startswith(b"A ker")
    assert len(written) == 13


@pytest.mark.slow
def test_paged_writing_is_the_model_itself(device):
    """The bytes that are most likely by the cache of pages are those by the whole text."""
    torch.manual_seed(0)
    model = language_model.LanguageModel(language_model.Sizes(layers=2), "tilewright").to(device)
    written = model.write(b"ab", 20, temperature=1e-6)
    text = torch.tensor([list(written)], device=device)
    with torch.no_grad():
        likely = model.predict(text)[0].argmax(-1)
    assert written[2:] == bytes(likely[1:-1].tolist())


@pytest.mark.slow
def test_a_diffusion_model_learns_the_same(device):
    curves = {}
    for backend in ("torch", "tilewright"):
        model, curves[backend] = diffusion_model.train(backend, steps=6, batch=4, device=device)
    np.testing.assert_allclose(curves["tilewright"], curves["torch"], rtol=TOLERANCE)
    drawn = diffusion_model.sample(model, 2, device)
    assert drawn.shape == (2, 1, 16, 16)
    assert drawn.isfinite().all()


def test_curves_and_pictures_are_files(tmp_path):
    save_curves({"torch": [2.0, 1.0]}, "loss", tmp_path / "made" / "curve")
    assert (tmp_path / "made" / "curve.json").read_text() == '{"torch": [2.0, 1.0]}'
    pictures = diffusion_model.pictures(3, torch.Generator().manual_seed(0))
    assert pictures.min() >= -1
    assert pictures.max() <= 1
    save_pictures(pictures[:, 0], tmp_path / "row.png")
    assert (tmp_path / "row.png").read_bytes().startswith(b"\x89PNG")

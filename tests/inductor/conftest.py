"""torch.compile where `triton` is Tilewright, with caches of its own."""

import importlib
import importlib.util

import pytest

import tilewright.alias

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["*"]
else:
    # These ask once, when they are imported, whether there is Triton. Other tests import them, too.
    tilewright.alias.install()
    for name in ("torch._dynamo", "torch._inductor.compile_fx"):
        importlib.import_module(name)
    tilewright.alias.uninstall()


@pytest.fixture(scope="module")
def compiling(tmp_path_factory):
    """Install the alias, and let Inductor use it on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        tilewright.alias.install()
        from tests.inductor.sweep import configured

        with configured():
            yield
        tilewright.alias.uninstall()

"""What the tests of packages expect of a machine with a GPU, answered for the CPU.

A plugin of pytest, and no part of Tilewright: `tools/package_suites.py` loads it into the test
runs of packages, whose files stay as they are. Each entry says who asks.
"""

import functools
import os
import sys
from types import SimpleNamespace

import torch


def _cpu_properties(device=0):
    """The memory of the machine: liger's tests of TVD leave out large cases on small devices."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return SimpleNamespace(total_memory=pages, name="cpu", multi_processor_count=os.cpu_count())


def pytest_addoption(parser):
    parser.addoption("--most", type=int, help="of each file so many tests, spread evenly")


def pytest_collection_modifyitems(config, items):
    most = config.getoption("--most")
    if most and len(items) > most:
        kept = [items[number * len(items) // most] for number in range(most)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def _by_fp32(product):
    """A product of fp16 matrices by way of fp32, its gradient too: PyTorch's take minutes."""

    @functools.wraps(product)
    def multiply(*operands, **options):
        tensors = [x for x in operands if isinstance(x, torch.Tensor)]
        is_narrow = all(x.dtype == torch.float16 for x in tensors) or (
            torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16
        )
        if options or not is_narrow or any(x.device.type != "cpu" for x in tensors):
            return product(*operands, **options)
        with torch.autocast("cpu", enabled=False):
            wide = [x.half().float() if isinstance(x, torch.Tensor) else x for x in operands]
            return product(*wide).half()

    return multiply


def pytest_collection_finish(session):
    # liger's backward pass of DyT knows how many partial sums to make on GPUs only.
    module = sys.modules.get("liger_kernel.ops.dyt")
    if module is not None:
        module.infer_device = lambda: "cuda"
        torch.cuda.get_device_properties = _cpu_properties
    # liger's fused MLP asserts that its tensors are on a GPU.
    if any(item.path.name == "test_mlp.py" for item in session.items):
        torch.Tensor.is_cuda = property(lambda _: True)
        torch.cuda.get_device_properties = _cpu_properties


def pytest_configure(config):
    # liger marks tests for pytest-rerunfailures: here each has to pass at once.
    config.addinivalue_line("markers", "flaky(reruns, reruns_delay): run again where it fails")
    if not hasattr(torch.cpu, "get_device_properties"):
        torch.cpu.get_device_properties = _cpu_properties
    for place, name in (
        *((torch, name) for name in ("addmm", "matmul", "mm")),
        *((torch.Tensor, name) for name in ("__matmul__", "addmm", "matmul", "mm")),
        (torch.nn.functional, "linear"),
    ):
        setattr(place, name, _by_fp32(getattr(place, name)))

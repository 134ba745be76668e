"""Which of the many cases run every day."""

import zlib

import pytest

_EVERY = 200


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of the sweep over all architectures, a sample that is the same each time."""
    for item in items:
        if item.path.name == "test_architectures.py" and zlib.crc32(item.name.encode()) % _EVERY:
            item.add_marker(pytest.mark.slow)

import pytest

from tilewright.frontend.context import Eager, activate
from tilewright.interpreter import Interpreter


@pytest.fixture(autouse=True)
def machine():
    """Every test runs as the only program of a grid, eagerly."""
    interpreter = Interpreter()
    with activate(Eager(interpreter)):
        yield interpreter

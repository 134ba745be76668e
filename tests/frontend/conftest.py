import pytest

from tilewright.frontend.context import Eager, activate
from tilewright.interpreter import Interpreter


@pytest.fixture
def machine():
    """The test runs as the only program of a grid, eagerly."""
    interpreter = Interpreter()
    with activate(Eager(interpreter)):
        yield interpreter

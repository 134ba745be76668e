import sys
from pathlib import Path

# `handwritten_kernels.py` stands beside the tests that use it.
sys.path.insert(0, str(Path(__file__).parent))

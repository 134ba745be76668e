import sys
from pathlib import Path

# The kernels and tools of these tests, `ptx_*.py`, stand beside them.
sys.path.insert(0, str(Path(__file__).parent))

"""`triton` as another name of Tilewright, for programs that import it; never without being asked.

`install()` lets `import triton` and what lies below it resolve to Tilewright in this process and
in those it starts; `uninstall()` takes that back. `python -m tilewright program.py` runs a program
with the alias.
"""

from tilewright.alias.installation import PATH, install, is_installed, uninstall

__all__ = ["PATH", "install", "is_installed", "uninstall"]

"""`python -m tilewright`: the command of the same name."""

import sys

from tilewright.cli import main

if __name__ == "__main__":
    sys.exit(main())

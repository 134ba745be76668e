"""`triton.tools`: what the host needs beside kernels. Modules that Tilewright has too are those."""

import sys

from tilewright.tools import experimental_descriptor, mxfp, ragged_tma, tensor_descriptor

for _module in (experimental_descriptor, mxfp, ragged_tma, tensor_descriptor):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module

__all__ = ["experimental_descriptor", "mxfp", "ragged_tma", "tensor_descriptor"]

"""What the kernels of `benchmarks/kernels/` are measured on, one module for each theme."""

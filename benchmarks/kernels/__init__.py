"""Kernels as Triton's users write them; `benchmarks/systems.py` loads each file once a system."""

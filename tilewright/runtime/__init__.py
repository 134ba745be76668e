"""Devices, launches and caches: what happens when a compiled kernel runs."""

"""Tilewright: a language of tiles embedded in Python, and the compiler behind it."""

__version__ = "0.1.0"

"""Measurements beside other libraries."""

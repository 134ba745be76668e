"""The lowering that GPUs have in common: tiles in registers, by layouts."""

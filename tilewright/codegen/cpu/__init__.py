"""The CPU target: tiles become loops over vectors, ``dot`` becomes a packed microkernel."""

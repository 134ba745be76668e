"""The tile IR: types, values, ops, blocks, functions, and the text form of all of them."""

"""From IR to machine code: LLVM, and one package for each kind of target."""

"""Hosts other than this one, to compile for, and for lesser x86 machines also to run."""

import llvmlite.binding as llvm

from tilewright.codegen.llvm import host
from tilewright.target import Host


def lesser_x86(level: str) -> Host:
    """This machine without what newer ones have: `avx2` or `sse`."""
    machine = host()
    newer = ("avx512", "amx") if level == "avx2" else ("avx", "amx", "fma", "f16c", "vaes", "xop")
    gone = {f for f in machine.features if f.startswith(newer)}
    return machine._replace(
        cpu="znver3" if level == "avx2" else "x86-64",
        features=machine.features - gone,
        missing_features=machine.missing_features | gone,
        vector_bits=256 if level == "avx2" else 128,
        has_amx=False,
    )


def arm() -> Host:
    """A 64-bit Arm server with NEON."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu="neoverse-n1")
    return Host(
        architecture="aarch64",
        triple=triple,
        data_layout=str(machine.target_data),
        cpu="neoverse-n1",
        features=frozenset({"neon", "fp-armv8"}),
        missing_features=frozenset(),
        vector_bits=128,
        has_amx=False,
        cores=4,
    )

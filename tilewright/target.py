"""What the compiler knows about a machine: frozen facts, no code that runs anything."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["AMX_FEATURES", "CPU_BY_FEATURES", "Host", "vector_bits_of"]

AMX_FEATURES = frozenset({"amx-tile", "amx-bf16", "amx-int8"})

_AVX512 = frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq"})
_AVX2 = frozenset({"avx2", "fma"})

# The scheduling model is chosen by what the machine can do, best first: the name that a hypervisor
# reports is often wrong. Only AMD has sse4a. Features that the name implies and the machine lacks
# are switched off one by one.
CPU_BY_FEATURES: tuple[tuple[str, frozenset[str]], ...] = (
    ("sapphirerapids", _AVX512 | {"amx-tile", "avx512fp16"}),
    ("znver4", _AVX512 | {"avx512bf16", "sse4a"}),
    ("icelake-server", _AVX512 | {"avx512vbmi2"}),
    ("skylake-avx512", _AVX512),
    ("znver3", _AVX2 | {"sse4a"}),
    ("haswell", _AVX2),
    ("x86-64-v2", frozenset({"sse4.2", "popcnt"})),
    ("x86-64", frozenset()),
)


def vector_bits_of(features: frozenset[str]) -> int:
    """Return the width in bits of the widest vectors that are fully supported."""
    if features >= _AVX512:
        return 512
    return 256 if features >= _AVX2 else 128


@dataclass(frozen=True, slots=True)
class Host:
    """A CPU that kernels are compiled for.

    `missing_features` are the features that LLVM knows for this architecture and the machine
    lacks. `has_amx` says that the operating system lets this process use the AMX tiles, not only
    that the CPU has them. `cores` counts the cores this process may use.
    """

    architecture: str
    triple: str
    data_layout: str
    cpu: str
    features: frozenset[str]
    missing_features: frozenset[str]
    vector_bits: int
    has_amx: bool
    cores: int

    @property
    def feature_string(self) -> str:
        """The features as LLVM reads them: `+avx2,-sse4a,...`."""
        switches = [f"+{name}" for name in sorted(self.features)]
        switches += [f"-{name}" for name in sorted(self.missing_features)]
        if self.vector_bits == 512:
            # The Intel models prefer 256 bits for mixed code; tile code is vectors throughout.
            switches.append("-prefer-256-bit")
        return ",".join(switches)

    @property
    def fingerprint(self) -> str:
        """A short text that differs where generated code may differ: a part of cache keys."""
        facts = f"{self.triple};{self.cpu};{self.feature_string};{self.has_amx}"
        digest = hashlib.sha256(facts.encode()).hexdigest()
        return f"{self.architecture}-{self.cpu}-{digest[:16]}"

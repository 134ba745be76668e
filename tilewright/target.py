"""What the compiler knows about a machine: frozen facts, no code that runs anything."""

from __future__ import annotations

import hashlib
import platform
from typing import NamedTuple

__all__ = [
    "AMX_FEATURES",
    "CPU_BY_FEATURES",
    "NVIDIA_CAPABILITIES",
    "NVIDIA_TARGETS",
    "GPUTarget",
    "Host",
    "NvidiaTarget",
    "nvidia_target",
    "vector_bits_of",
]

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


class Host(NamedTuple):
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


class NvidiaTarget(NamedTuple):
    """An NVIDIA GPU architecture that kernels are compiled for.

    `architecture` is its name for LLVM and ptxas, `ptx_feature` the version of PTX that LLVM is
    asked for. `shared_bytes` is how much shared memory a block may have. `product_types` are the
    types that `mma.sync` multiplies; where it `unpacks_fp8_operands` to fp16, the tensor cores
    have no such instruction. `has_stmatrix` and the like say what instructions there are.
    `most_warps` is the number of warps that a multiprocessor runs at once, `largest_grid` that of
    blocks along each axis.
    """

    architecture: str
    compute_capability: tuple[int, int]
    ptx_feature: str
    shared_bytes: int
    product_types: frozenset[str]
    unpacks_fp8_operands: bool = False
    has_stmatrix: bool = False
    has_wgmma: bool = False
    has_tma: bool = False
    has_vector_atomics: bool = False
    most_warps: int = 64
    warp_size: int = 32
    largest_grid: tuple[int, int, int] = (2**31 - 1, 2**16 - 1, 2**16 - 1)

    @property
    def triple(self) -> str:
        """The target as LLVM names it."""
        return "nvptx64-nvidia-cuda"

    @property
    def own_shared(self) -> str:
        """What the shared memory of a block is for copies by one thread, of all that a cluster has.

        Only from version 8.6 on PTX can say that they stay in the block. On sm_120a the others are
        branches to a function of the driver, for which a thread needs a stack.
        """
        version = int(self.ptx_feature.removeprefix("+ptx"))
        return "shared::cta" if version >= 86 else "shared::cluster"

    @property
    def fingerprint(self) -> str:
        """A short text that differs where generated code may differ: a part of cache keys."""
        return f"nvidia-{self.architecture}-{self.ptx_feature}"


_TURING_PRODUCTS = frozenset({"fp16", "i8", "u8"})
_AMPERE_PRODUCTS = _TURING_PRODUCTS | {"bf16", "tf32", "fp64"}
_ADA_PRODUCTS = _AMPERE_PRODUCTS | {"fp8e4nv", "fp8e5"}
_KIB = 1024

# The shared memory of a block is a multiprocessor's less the kilobyte that the driver keeps
# (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
NVIDIA_TARGETS: tuple[NvidiaTarget, ...] = (
    NvidiaTarget("sm_75", (7, 5), "+ptx83", 64 * _KIB, _TURING_PRODUCTS, most_warps=32),
    NvidiaTarget("sm_80", (8, 0), "+ptx83", 163 * _KIB, _AMPERE_PRODUCTS),
    NvidiaTarget("sm_86", (8, 6), "+ptx83", 99 * _KIB, _AMPERE_PRODUCTS, most_warps=48),
    NvidiaTarget("sm_89", (8, 9), "+ptx84", 99 * _KIB, _ADA_PRODUCTS, most_warps=48),
    NvidiaTarget(
        "sm_90a", (9, 0), "+ptx84", 227 * _KIB, _ADA_PRODUCTS,
        unpacks_fp8_operands=True, has_stmatrix=True, has_wgmma=True, has_tma=True,
        has_vector_atomics=True,
    ),
    NvidiaTarget(
        "sm_100a", (10, 0), "+ptx88", 227 * _KIB, _ADA_PRODUCTS, unpacks_fp8_operands=True,
        has_stmatrix=True, has_tma=True, has_vector_atomics=True,
    ),
    NvidiaTarget(
        "sm_120a", (12, 0), "+ptx88", 99 * _KIB, _ADA_PRODUCTS,
        has_stmatrix=True, has_tma=True, has_vector_atomics=True, most_warps=48,
    ),
)  # fmt: skip
NVIDIA_CAPABILITIES = "7.5, 8.0 to 8.9, 9.0, 10.0 and 12.0"  # of all these, for messages


def nvidia_target(major: int, minor: int) -> NvidiaTarget | None:
    """Return the best target for a GPU of this compute capability, None where there is none.

    Later minor versions run what earlier ones do, except for what is special to an architecture.
    """
    fitting = [
        target
        for target in NVIDIA_TARGETS
        if target.compute_capability == (major, minor)
        or (
            target.compute_capability < (major, minor)
            and target.compute_capability[0] == major
            and not target.architecture.endswith("a")
        )
    ]
    return max(fitting, key=lambda target: target.compute_capability, default=None)


class GPUTarget(NamedTuple):
    """A kind of machine, as Triton writes it down: `backend` is `"cuda"` or `"cpu"`.

    `arch` is a compute capability (90: 9.0), or a CPU (`"x86_64"`).

    >>> GPUTarget("cuda", 90, 32).backend
    'cuda'
    """

    backend: str
    arch: int | str
    warp_size: int

    @classmethod
    def of(cls, target: NvidiaTarget | None) -> GPUTarget:
        """Return an architecture written down; None stands for this machine's CPU."""
        if target is None:
            return cls("cpu", platform.machine(), 1)
        major, minor = target.compute_capability
        return cls("cuda", 10 * major + minor, target.warp_size)

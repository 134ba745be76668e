"""Kernels as C sources in the manner of Triton: one for each signature, and what chooses one.

`compile_kernel` writes a source with the machine code of a kernel for one NVIDIA architecture, and
a header. A comment of the header says for which arguments the kernel is; `link` reads it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tilewright.alias.drivers import driver
from tilewright.compiler import GPUTarget
from tilewright.errors import LaunchError
from tilewright.frontend.function import KernelFunction
from tilewright.ir.types import PointerType
from tilewright.runtime.ahead_of_time import compile_ahead_for_gpu, write_file
from tilewright.runtime.artifact_code import CParameter, GpuImage
from tilewright.runtime.artifact_header import c_type
from tilewright.target import nvidia_target

__all__ = ["Variant", "compile_kernel", "link", "target_of"]

_HINTS = {"1": "c", "16": "d"}
_DIRECTIVE = re.compile(r"//\s*tt-linker:\s*(\w+)_(\w{8})_(\w+):(.*):(\w+)\s*$")


def target_of(text: str | None) -> str:
    """Return the architecture that `cuda:90:32` names; None stands for this machine's GPU."""
    target = driver.active.get_current_target()
    if text is not None:
        backend, _, rest = text.partition(":")
        target = GPUTarget(backend, rest.partition(":")[0], 32)
    number = re.sub(r"\D", "", str(target.arch))
    found = nvidia_target(*divmod(int(number), 10)) if target.backend == "cuda" and number else None
    if found is None:
        raise LaunchError(
            f"there is no code in C for {text or target.backend}",
            hint="`-t cuda:90:32` names a GPU; `tilewright compile` compiles for the CPU, too",
        )
    return found.architecture


def compile_kernel(
    kernel: KernelFunction,
    signature: str,
    grid: Sequence[str],
    *,
    target: str,
    num_warps: int = 1,
    num_stages: int = 3,
    out_name: str = "",
    out_path: Path | None = None,
) -> tuple[str, list[Path]]:
    """Write a kernel as C source and header; return the name of the function, and the files.

    The items of the grid are expressions in C, of the names of the parameters.
    """
    items = [item.strip() for item in signature.split(",")]
    options = {"num_warps": num_warps, "num_stages": num_stages}
    parameters, image = compile_ahead_for_gpu(kernel, signature, target, options)
    variant = Variant.of(kernel, items, parameters, out_name, options)
    path = out_path or Path(variant.name)
    files = []
    for extension, text in (("c", _source(variant, image, grid)), ("h", _header(variant))):
        file = path.with_suffix(f".{variant.digest}_{variant.suffix}.{extension}")
        write_file(file, text.encode())
        files.append(file)
    return variant.function, files


class Variant(NamedTuple):
    """One kernel in C: for which arguments it is, and how it is called.

    `arguments` are type and name of what is passed to any variant; `hints` say for each what this
    one relies on: 1, 16, or None. Variants of one `algorithm` differ in nothing else.
    """

    name: str
    digest: str
    suffix: str
    algorithm: str
    arguments: tuple[tuple[str, str], ...]
    hints: tuple[int | None, ...]

    @classmethod
    def of(
        cls,
        kernel: KernelFunction,
        items: Sequence[str],
        parameters: Sequence[CParameter],
        name: str,
        options: dict[str, int],
    ) -> Variant:
        """Return the variant that a signature asks for."""
        types = {p.name: (_c_type(p), p.c_name) for p in parameters}
        hints = [item.partition(":")[2] for item in items]
        arguments, kept, constants = [], [], []
        for parameter, item, hint in zip(kernel.params, items, hints, strict=False):
            if parameter.name in types:
                arguments.append(types[parameter.name])
                kept.append(16 if hint == "16" else None)
            elif hint == "1":
                arguments.append(("int32_t", parameter.name))
                kept.append(1)
            else:
                constants.append(re.sub(r"\W", "_", item))
        settings = f"warps{options['num_warps']}xstages{options['num_stages']}"
        digest = hashlib.sha256(" ".join([*items, settings]).encode()).hexdigest()[:8]
        suffix = "".join(f"{i}{_HINTS.get(hint, '')}" for i, hint in enumerate(hints))
        algorithm = f"{'x'.join(constants)}_{settings}"
        return cls(name or kernel.name, digest, suffix, algorithm, tuple(arguments), tuple(kept))

    @classmethod
    def read(cls, header: str) -> Iterable[Variant]:
        """Yield the variants that a header declares."""
        for line in header.splitlines():
            found = _DIRECTIVE.match(line)
            if found is None:
                continue
            name, digest, suffix, arguments, algorithm = found.groups()
            fields = [field.split("=") for field in arguments.split(",") if field.strip()]
            declared = [field[0].strip().rpartition(" ") for field in fields]
            typed = tuple((kind, argument) for kind, _, argument in declared)
            hints = tuple(int(field[1]) or None for field in fields)
            yield cls(name, digest, suffix, algorithm, typed, hints)

    @property
    def function(self) -> str:
        """The name of the function in C."""
        return f"{self.name}_{self.digest}_{self.suffix}"

    @property
    def group(self) -> str:
        """The name of what chooses among variants of one algorithm."""
        return f"{self.name}_{self.algorithm}".replace("__", "_")

    @property
    def passed(self) -> list[tuple[str, str]]:
        """The arguments of this variant: those that it does not know."""
        return [a for a, hint in zip(self.arguments, self.hints, strict=True) if hint != 1]

    @property
    def condition(self) -> str:
        """In C, whether arguments are what this one relies on."""
        tests = {1: "{} == 1", 16: "{} % 16 == 0"}
        found = [
            tests[hint].format(name)
            for (_, name), hint in zip(self.arguments, self.hints, strict=True)
            if hint is not None
        ]
        return " && ".join(found) or "1"


def _c_type(parameter: CParameter) -> str:
    is_pointer = isinstance(parameter.element, PointerType)
    return "CUdeviceptr" if is_pointer else c_type(parameter).strip()


def _declared(arguments: Iterable[tuple[str, str]]) -> str:
    return "".join(f", {kind} {name}" for kind, name in arguments)


def _header(variant: Variant) -> str:
    name = variant.function
    described = ", ".join(
        f"{kind} {argument}={hint or 0}"
        for (kind, argument), hint in zip(variant.arguments, variant.hints, strict=True)
    )
    return f"""#pragma once
#include <cuda.h>
#include <stdint.h>

// tt-linker: {name}:{described}:{variant.algorithm}
CUresult {name}(CUstream stream{_declared(variant.passed)});
void load_{name}(void);
void unload_{name}(void);
"""


def _source(variant: Variant, image: GpuImage, grid: Sequence[str]) -> str:
    data = ",".join(map(str, image.image))
    addresses = "".join(f"&{name}, " for _, name in variant.passed)
    return _SOURCE.format(
        name=variant.function,
        declared=_declared(variant.passed),
        data=data,
        symbol=image.symbol,
        shared=image.shared_bytes,
        threads=image.threads,
        addresses=addresses,
        x=grid[0],
        y=grid[1],
        z=grid[2],
    )


_SOURCE = """#include <cuda.h>
#include <stdint.h>

static _Alignas(64) const unsigned char image[] = {{{data}}};
static CUmodule module;
static CUfunction function;

static CUresult loaded(void) {{
  CUresult result = CUDA_SUCCESS;
  if (function) return result;
  if ((result = cuModuleLoadData(&module, image)) != CUDA_SUCCESS) return result;
  CUfunction found;
  if ((result = cuModuleGetFunction(&found, module, "{symbol}")) != CUDA_SUCCESS) return result;
  result = cuFuncSetAttribute(found, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, {shared});
  if (result == CUDA_SUCCESS) function = found;
  return result;
}}

void load_{name}(void) {{ (void)loaded(); }}

void unload_{name}(void) {{
  if (function) (void)cuModuleUnload(module);
  function = 0;
}}

CUresult {name}(CUstream stream{declared}) {{
  const CUresult result = loaded();
  if (result != CUDA_SUCCESS) return result;
  const unsigned x = {x}, y = {y}, z = {z};
  void *arguments[] = {{{addresses}0}};
  if (!x || !y || !z) return CUDA_SUCCESS;
  return cuLaunchKernel(function, x, y, z, {threads}, 1, 1, {shared}, stream, arguments, 0);
}}
"""


# ---- choosing among variants ----------------------------------------------------------------


def link(headers: Sequence[Path], out: Path) -> list[Path]:
    """Write what chooses among the kernels of these headers, as C source and header.

    `NAME(stream, arguments..., algo_id)` takes the kernel for the arguments at hand, of the
    constants and options with that number; `NAME_default` takes those of number 0.
    """
    groups: dict[str, list[Variant]] = {}
    for header in headers:
        for variant in Variant.read(header.read_text(encoding="utf-8")):
            groups.setdefault(variant.group, []).append(variant)
    variants = [variant for group in groups.values() for variant in group]
    if not variants:
        raise LaunchError("there is no kernel in these headers", hint="link *.h of one kernel")
    first = variants[0]
    for variant in variants:
        if (variant.name, variant.arguments) != (first.name, first.arguments):
            raise LaunchError(
                f"`{variant.function}` takes other arguments than `{first.function}`, or is "
                "another kernel",
                hint="kernels of one name and of the same arguments are linked together",
            )
    files = [out.with_suffix(".h"), out.with_suffix(".c")]
    write_file(files[0], _chooser_header(first, list(groups)).encode())
    write_file(files[1], _chooser_source(first, groups).encode())
    return files


def _chooser_header(first: Variant, names: Sequence[str]) -> str:
    declared = _declared(first.arguments)
    parts = ["#pragma once\n#include <cuda.h>\n#include <stdint.h>\n\n"]
    parts += [f"CUresult {name}(CUstream stream{declared});\n{_loaders(name)}" for name in names]
    parts.append(f"""
int {first.name}_get_num_algos(void);
CUresult {first.name}_default(CUstream stream{declared});
CUresult {first.name}(CUstream stream{declared}, int algo_id);
{_loaders(first.name)}""")
    return "".join(parts)


def _loaders(name: str) -> str:
    return f"void load_{name}(void);\nvoid unload_{name}(void);\n"


def _chooser_source(first: Variant, groups: dict[str, list[Variant]]) -> str:
    declared, name = _declared(first.arguments), first.name
    passed = "".join(f", {argument}" for _, argument in first.arguments)
    return "".join(
        [
            "#include <cuda.h>\n#include <stdint.h>\n\n",
            *(_group(group, members, declared) for group, members in groups.items()),
            f"typedef CUresult (*algorithm)(CUstream stream{declared});\n",
            f"static const algorithm algorithms[] = {{{', '.join(groups)}}};\n\n",
            f"int {name}_get_num_algos(void) {{ return {len(groups)}; }}\n\n",
            f"CUresult {name}(CUstream stream{declared}, int algo_id) {{\n",
            f"  if (algo_id < 0 || algo_id >= {len(groups)}) return CUDA_ERROR_INVALID_VALUE;\n",
            f"  return algorithms[algo_id](stream{passed});\n}}\n\n",
            f"CUresult {name}_default(CUstream stream{declared}) {{\n",
            f"  return {name}(stream{passed}, 0);\n}}\n\n",
            *(_all(mode, name, list(groups)) for mode in ("load", "unload")),
        ]
    )


def _group(name: str, members: Sequence[Variant], declared: str) -> str:
    """What takes the variant that relies on most of what the arguments are."""
    ordered = sorted(members, key=lambda member: member.hints.count(None))
    functions = [member.function for member in ordered]
    parts = [
        f"CUresult {m.function}(CUstream stream{_declared(m.passed)});\n{_loaders(m.function)}"
        for m in ordered
    ]
    parts.append(f"\nCUresult {name}(CUstream stream{declared}) {{\n")
    for member in ordered:
        passed = "".join(f", {argument}" for _, argument in member.passed)
        parts.append(f"  if ({member.condition}) return {member.function}(stream{passed});\n")
    parts.append("  return CUDA_ERROR_INVALID_VALUE;\n}\n\n")
    parts += [_all(mode, name, functions) for mode in ("load", "unload")]
    return "".join(parts)


def _all(mode: str, name: str, others: Sequence[str]) -> str:
    calls = "".join(f"  {mode}_{other}();\n" for other in others)
    return f"void {mode}_{name}(void) {{\n{calls}}}\n\n"

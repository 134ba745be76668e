"""Kernels for programs without Python: an object file and a C header, made ahead of time.

The object has the kernel for the CPU, and for each GPU that was asked for its machine code, or PTX
where there is no assembler. The header declares what runs them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.codegen.cpu.compile import CpuKernel, generate
from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.host import module_header
from tilewright.codegen.llvm import compile_to_object
from tilewright.errors import LaunchError
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.function import KernelFunction
from tilewright.frontend.parameters import Parameter, element_type_from_text
from tilewright.ir.core import Function
from tilewright.ir.types import DTYPES
from tilewright.passes.pipeline import prepare_for_cpu
from tilewright.passes.written_parameters import written_parameters
from tilewright.runtime.arguments import Argument, specialize, specialize_type
from tilewright.runtime.artifact_code import CParameter, GpuImage, cpu_entry, data
from tilewright.runtime.artifact_header import header
from tilewright.runtime.build import tile_ir
from tilewright.runtime.gpu_build import assembled, write_ptx
from tilewright.runtime.host import host
from tilewright.runtime.request import Request
from tilewright.spelling import did_you_mean
from tilewright.target import NVIDIA_TARGETS

__all__ = ["Artifact", "compile_ahead", "compile_ahead_for_gpu", "write_file"]

_GPUS = {target.architecture: target for target in NVIDIA_TARGETS}


@dataclass(frozen=True)
class Artifact:
    """What a C program needs: `name.h` to include, `name.o` to link."""

    name: str
    header: str
    object: bytes

    def write(self, directory: Path) -> tuple[Path, Path]:
        """Write both files, making the directory where it is not there; return their paths.

        Raises `LaunchError` where they cannot be written.
        """
        paths = directory / f"{self.name}.h", directory / f"{self.name}.o"
        write_file(paths[0], self.header.encode())
        write_file(paths[1], self.object)
        return paths


def write_file(path: Path, contents: bytes) -> None:
    """Write a file, making its directory; raise `LaunchError` where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
    except OSError as error:
        raise LaunchError(
            f"{path} cannot be written: {error.strerror}",
            hint="name a directory that you may write to, by `-o`",
        ) from error


def compile_ahead(
    kernel: KernelFunction,
    signature: str | Sequence[Any],
    *,
    targets: Sequence[str] = ("cpu",),
    name: str = "",
    options: Mapping[str, Any] | None = None,
) -> Artifact:
    """Compile a kernel for C programs.

    Args:
        kernel: A function decorated with `jit`.
        signature: For each parameter the type of an argument (`"*fp32"`, `"i32"`), with `:16` where
            16 divides it (an address in bytes), or a constant. As a text, they are separated by
            commas.
        targets: `"cpu"`, and names of NVIDIA architectures, as `"sm_90a"`; all in one object.
        name: Of the functions and the files; the kernel's, if it is left out.
        options: Those of a launch: `num_warps`, `num_stages`, `debug`, ...

    Raises:
        LaunchError: The signature does not fit the kernel, or a target is not known.
    """
    chosen = name or kernel.name
    request = _request(kernel, signature, options or {})
    function = tile_ir(request)
    parameters = _parameters(function)
    texts: list[str] = []
    cpu: CpuKernel | None = None
    if "cpu" in targets:
        # A program has to ask Linux for AMX, so the code does without.
        here = host()._replace(has_amx=False)
        cpu = generate(prepare_for_cpu(function), here)
        texts.append(cpu_entry(cpu, chosen, parameters))
    else:
        texts.append(module_header(host()))
    images = [
        _image(request, chosen, target, _gpu_options(options or {}))
        for target in targets
        if target != "cpu"
    ]
    texts += [data(image.variable, image.image) for image in images]
    made = compile_to_object("\n".join(texts), host=host())
    return Artifact(chosen, header(kernel, chosen, parameters, cpu, images), made)


def compile_ahead_for_gpu(
    kernel: KernelFunction,
    signature: str | Sequence[Any],
    target: str,
    options: Mapping[str, Any] | None = None,
) -> tuple[list[CParameter], GpuImage]:
    """Return what a C program passes to a kernel, and its code for one NVIDIA architecture.

    The arguments and the errors are those of `compile_ahead`.
    """
    request = _request(kernel, signature, options or {})
    image = _image(request, kernel.name, target, _gpu_options(options or {}))
    return _parameters(tile_ir(request)), image


def _request(
    kernel: KernelFunction, signature: str | Sequence[Any], options: Mapping[str, Any]
) -> Request:
    debug = bool(options.get("debug", False))
    return Request(
        kernel,
        {a.name: a.specialization for a in _arguments(kernel, signature)},
        debug=debug,
        checks_overflow=debug and bool(options.get("sanitize_overflow", True)),
    )


def _parameters(function: Function) -> list[CParameter]:
    written = written_parameters(function)
    return [
        CParameter(param.name, param.type.element, is_written=number in written)
        for number, param in enumerate(function.params)
    ]


def _gpu_options(options: Mapping[str, Any]) -> GpuOptions:
    """The code is called by programs in C, with all arguments and nothing else."""
    return GpuOptions.among({**options, "tensor_maps": False, "every_parameter": True})


def _image(request: Request, name: str, target: str, options: GpuOptions) -> GpuImage:
    if target not in _GPUS:
        known = ", ".join(["cpu", *_GPUS])
        raise LaunchError(f"there is no target {target!r}", hint=f"the targets are {known}")
    architecture = _GPUS[target]
    _, kernel = write_ptx(request, architecture, options)
    made = assembled(kernel, architecture)
    image = kernel.ptx.encode() + b"\0" if made is None else made.cubin
    return GpuImage(
        f"{name}_{target}",
        architecture,
        image,
        made is None,
        kernel.symbol,
        kernel.shared_bytes,
        kernel.num_warps * architecture.warp_size,
    )


# ---- signatures -----------------------------------------------------------------------------


def _arguments(kernel: KernelFunction, signature: str | Sequence[Any]) -> list[Argument]:
    items = _split(signature) if isinstance(signature, str) else list(signature)
    params = kernel.params
    missing = [p for p in params[len(items) :] if not p.has_default]
    if len(items) > len(params) or missing:
        names = ", ".join(p.name for p in params)
        raise LaunchError(
            f"the signature has {len(items)} items, `{kernel.name}` has the parameters {names}",
            location=kernel.location,
            hint="write one item for each, a type or a constant, separated by commas",
        )
    given = [_argument(p, item) for p, item in zip(params, items, strict=False)]
    return given + [specialize(p, constexpr(p.default)) for p in params[len(items) :]]


def _split(signature: str) -> list[Any]:
    return [part.strip() for part in signature.split(",") if part.strip()]


def _argument(parameter: Parameter, item: Any) -> Argument:
    """Return what one item of a signature says of a parameter."""
    text, _, hint = item.partition(":") if isinstance(item, str) else ("", "", "")
    element = None if parameter.is_constexpr else element_type_from_text(text)
    if element is None:
        return specialize(parameter, constexpr(_constant(parameter, item)))
    if hint not in {"", "1", "16"}:
        raise LaunchError(
            f"`{parameter.name}`: {item!r} has the hint {hint!r}, not 1 or 16",
            hint=f'write "{text}:16" where 16 divides it, "{text}:1" where it is 1, or "{text}"',
        )
    if hint == "1":
        return specialize(parameter, constexpr(1))
    return specialize_type(parameter, element, is_divisible=hint == "16")


def _constant(parameter: Parameter, item: Any) -> Any:
    """Return the value that an item is; a word that names no type stands for itself."""
    if not isinstance(item, str):
        return item
    try:
        return ast.literal_eval(item)
    except (ValueError, SyntaxError):
        is_word = item.isidentifier() and element_type_from_text(item) is None
        if parameter.is_constexpr and is_word:
            return item
        raise _no_item(parameter, item) from None


def _no_item(parameter: Parameter, item: str) -> LaunchError:
    """Return the error about an item that is neither a type nor a value."""
    text = item.partition(":")[0].strip()
    name, equals, value = item.partition("=")
    if parameter.is_constexpr:
        message = f"`{parameter.name}` is tl.constexpr, and `{item}` is no value"
        hint = "give a value: a number, True, False, None, or a text in quotes"
    else:
        message = f"`{parameter.name}`: `{text}` is no type"
        star = "*" if "*" in text else ""
        names = [*DTYPES, *(dtype.long_name for dtype in DTYPES.values())]
        hint = did_you_mean(text.strip("* "), names, prefix=star)
        hint = hint or f"the types are {', '.join(DTYPES)}, and pointers to them: `*fp32`"
    if equals:
        hint = f"items are in the order of the parameters: write `{value.strip()}` for `{name}`"
    return LaunchError(f"the signature: {message}", hint=hint)

"""Parameters of kernels, and what their annotations say."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend.constexpr import constexpr
from tilewright.ir.types import DTYPES, DType, ElementType, PointerType

__all__ = ["Parameter", "element_type_from_text", "read_parameters"]

_LONG_NAMES = {dtype.long_name: dtype for dtype in DTYPES.values()}
_PYTHON_TYPES: dict[Any, DType] = {
    int: DTYPES["i32"],
    float: DTYPES["fp32"],
    bool: DTYPES["i1"],
    "int": DTYPES["i32"],
    "float": DTYPES["fp32"],
    "bool": DTYPES["i1"],
}
_OTHER_NAMES = {"u1": DTYPES["i1"], "int1": DTYPES["i1"]}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    `annotation_type` is the type that the annotation fixes, or None; `is_const` is set by
    `tl.const` and `"const *fp32"`: the memory behind the pointer is only read.
    """

    num: int
    name: str
    annotation: Any = None
    annotation_type: ElementType | None = None
    is_constexpr: bool = False
    is_const: bool = False
    is_variadic: bool = False
    is_keyword_only: bool = False
    has_default: bool = False
    default: Any = None
    do_not_specialize: bool = False
    do_not_specialize_on_alignment: bool = False


def element_type_from_text(text: str) -> ElementType | None:
    """Return the type that a text names: `i8`, `int64`, `*fp32`, `*kfp16`, `const *i32`."""
    text = text.strip()
    const = text.startswith("const ")
    text = text.removeprefix("const ").strip()
    if text.startswith("*"):
        inner = text[1:].strip()
        pointee = _dtype_from_text(inner)
        if pointee is None and inner.startswith("k"):
            pointee, const = _dtype_from_text(inner[1:]), True
        return None if pointee is None else PointerType(pointee, const)
    return _dtype_from_text(text)


def _dtype_from_text(text: str) -> DType | None:
    last = text.rpartition(".")[2]
    for table in (DTYPES, _LONG_NAMES, _OTHER_NAMES, _PYTHON_TYPES):
        if last in table:
            return table[last]
    return None


def _resolve(annotation: Any, namespace: Mapping[str, Any]) -> Any:
    """Return what a textual annotation means, or the text where that is not known."""
    if not isinstance(annotation, str) or element_type_from_text(annotation) is not None:
        return annotation
    # Annotations are text under `from __future__ import annotations`: the program's own code.
    try:
        return eval(annotation, dict(namespace))  # noqa: S307
    except Exception:  # noqa: BLE001 - an annotation with another purpose
        return annotation


def _is_const(annotation: Any) -> bool:
    if isinstance(annotation, PointerType):
        return annotation.const
    if isinstance(annotation, str):
        return annotation.startswith("const ") or annotation.rpartition(".")[2] == "const"
    return getattr(annotation, "__name__", None) == "const"


def _element_type(annotation: Any) -> ElementType | None:
    if isinstance(annotation, DType | PointerType):
        return annotation
    if isinstance(annotation, str):
        return element_type_from_text(annotation)
    return _PYTHON_TYPES.get(annotation) if isinstance(annotation, type) else None


def read_parameters(
    fn: FunctionType,
    namespace: Mapping[str, Any],
    do_not_specialize: Iterable[str | int],
    do_not_specialize_on_alignment: Iterable[str | int],
) -> tuple[Parameter, ...]:
    """Return the parameters of `fn`; names or positions select those that are not specialised."""
    unspecialised = set(do_not_specialize)
    unaligned = set(do_not_specialize_on_alignment)
    parameters = []
    for num, declared in enumerate(inspect.signature(fn).parameters.values()):
        selected, on_alignment = (
            bool({declared.name, num} & chosen) for chosen in (unspecialised, unaligned)
        )
        parameter = _parameter(fn, num, declared, namespace, selected, on_alignment)
        if parameter.is_constexpr and selected:
            raise CompileError(
                f"parameter `{parameter.name}` of `{fn.__name__}` is both tl.constexpr and "
                "do_not_specialize",
                hint="drop one: a constant is always specialised on",
            )
        parameters.append(parameter)
    return tuple(parameters)


def _parameter(
    fn: FunctionType,
    num: int,
    declared: inspect.Parameter,
    namespace: Mapping[str, Any],
    selected: bool,
    on_alignment: bool,
) -> Parameter:
    if declared.kind is declared.VAR_KEYWORD:
        raise CompileError(
            f"`{fn.__name__}` takes **{declared.name}: a kernel's parameters must be known by name",
            hint="name each parameter",
        )
    has_annotation = declared.annotation is not declared.empty
    annotation = _resolve(declared.annotation, namespace) if has_annotation else None
    is_constexpr = annotation is constexpr or (
        isinstance(annotation, str) and annotation.rpartition(".")[2] == "constexpr"
    )
    has_default = declared.default is not declared.empty
    return Parameter(
        num,
        declared.name,
        annotation,
        None if is_constexpr else _element_type(annotation),
        is_constexpr,
        has_annotation and _is_const(annotation),
        declared.kind is declared.VAR_POSITIONAL,
        declared.kind is declared.KEYWORD_ONLY,
        has_default,
        declared.default if has_default else None,
        selected,
        on_alignment,
    )

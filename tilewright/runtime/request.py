"""What to compile: a kernel, and what is known of its arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tilewright import env
from tilewright.frontend.function import KernelFunction
from tilewright.frontend.trace import Described
from tilewright.ir.types import PointerType
from tilewright.locks import cached_property
from tilewright.runtime.arguments import Specialization, traced_constant
from tilewright.runtime.cache import digest, entry_name
from tilewright.runtime.fingerprint import build_fingerprint, gpu_build_fingerprint
from tilewright.runtime.launch_parameters import (
    AddressParameter,
    ArrayParameter,
    BoolParameter,
    ConstantParameter,
    DescriptorParameter,
    FloatParameter,
    IntParameter,
    LaunchParameter,
    TupleParameter,
)

if TYPE_CHECKING:
    from tilewright.runtime.compile_stage import CompileStage
    from tilewright.runtime.gpu_target import GpuTarget
    from tilewright.runtime.override import Override

__all__ = ["Request"]


class Request:
    """A kernel and what is known of its arguments.

    With `debug`, assertions are compiled in; with `checks_overflow` too, also those that int32 does
    not wrap. `target` is a GPU, or None for this machine's CPU. `override` stands in place of one
    of the stages. `values` are the ints of the call that asks, for error messages only.
    Compiling notes in `times` how many seconds each stage takes.
    """

    def __init__(
        self,
        function: KernelFunction,
        specializations: Mapping[str, Specialization],
        *,
        debug: bool = False,
        checks_overflow: bool = False,
        version: str = "",
        target: GpuTarget | None = None,
        override: Override | None = None,
        values: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.function = function
        self.specializations = specializations
        self.debug = debug
        self.checks_overflow = checks_overflow
        self.version = version
        self.target = target
        self.override = override
        self.values = values
        self.times: dict[CompileStage, float] = {}

    def without_values(self) -> Request:
        """Return the request of any call that needs this code."""
        plain = self.for_target(self.target)
        if "hash" in vars(self):
            plain.hash = self.hash
        return plain

    def for_target(self, target: GpuTarget | None) -> Request:
        """Return the request of any call that needs this code for a target."""
        return Request(
            self.function,
            self.specializations,
            debug=self.debug,
            checks_overflow=self.checks_overflow,
            version=self.version,
            target=target,
            override=self.override,
        )

    @cached_property
    def is_portable(self) -> bool:
        """Whether another process can ask for the same."""
        return all(isinstance(s.key, str) for s in self.specializations.values())

    @cached_property
    def hash(self) -> str:
        """A name for the code: equal names, equal code."""
        keys = (f"{name}:{s.key}" for name, s in self.specializations.items())
        return digest(
            [
                self._fingerprint,
                self.function.cache_key,
                self.version,
                f"debug={self.debug},{self.checks_overflow}",
                f"disabled={sorted(env.disabled_passes())},lines={env.has_line_numbers()}",
                *keys,
                *(() if self.override is None else (self.override.stage, self.override.text)),
            ]
        )

    @property
    def _fingerprint(self) -> str:
        if self.target is None:
            return build_fingerprint()
        return f"{gpu_build_fingerprint()};{self.target.fingerprint}"

    @property
    def cache_name(self) -> str:
        """The name of its entry in the disk cache."""
        return entry_name(self.function.name, self.hash)

    def parameters(
        self, written: Collection[str], accessed: Collection[str]
    ) -> list[LaunchParameter] | None:
        """What a launcher in machine code has to check, or None where only Python can.

        `written` are the parameters that the kernel stores through, `accessed` those that it must
        not get as null.
        """
        return _all_known(
            _launch_parameter(name, known, accessed, is_written=name in written)
            for name, known in self.specializations.items()
        )


def _all_known(checks: Iterable[LaunchParameter | None]) -> list[LaunchParameter] | None:
    checks = list(checks)
    known = [check for check in checks if check is not None]
    return known if len(known) == len(checks) else None


def _launch_parameter(
    name: str, known: Specialization, accessed: Collection[str], *, is_written: bool
) -> LaunchParameter | None:
    if isinstance(known.traced, Described):
        return _descriptor_parameter(known.traced, is_written=is_written)
    element = known.element
    if element is None:
        constant = traced_constant(known.traced)
        if constant is not None:
            return ConstantParameter(constant.value)
        return _tuple_parameter(name, known, accessed, is_written=is_written)
    may_be_null = name not in accessed
    if isinstance(element, PointerType):
        if known.is_address:
            return AddressParameter(known.divisible_by_16, may_be_null=may_be_null)
        dtype_name = element.element_ty.short_name
        return ArrayParameter(
            dtype_name, known.divisible_by_16, written=is_written, may_be_null=may_be_null
        )
    if element.is_bool():
        return BoolParameter()
    if element.is_floating():
        bits = element.primitive_bitwidth
        return FloatParameter(bits) if bits >= 32 else None
    return IntParameter(
        bits=element.primitive_bitwidth,
        signed=element.is_int_signed(),
        divisible_by_16=known.divisible_by_16,
        excludes_one=known.excludes_one,
        excludes_narrower=known.chosen_by_value and element.primitive_bitwidth == 64,
    )


def _tuple_parameter(
    name: str, known: Specialization, accessed: Collection[str], *, is_written: bool
) -> LaunchParameter | None:
    items = _all_known(
        _launch_parameter(f"{name}[{i}]", item, accessed, is_written=is_written)
        for i, item in enumerate(known.items)
    )
    return TupleParameter(type(known.traced), items) if items else None


def _descriptor_parameter(known: Described, *, is_written: bool) -> DescriptorParameter:
    pointer = known.base.type.element
    assert isinstance(pointer, PointerType)
    base = ArrayParameter(
        pointer.element_ty.short_name, divisible_by_16=True, written=is_written, may_be_null=True
    )
    return DescriptorParameter(
        base,
        known.block_shape,
        str(known.padding),
        whole_rows=known.sizes[-1].divisible_by > 1,
        round_f32_to_tf32=known.round_f32_to_tf32,
    )

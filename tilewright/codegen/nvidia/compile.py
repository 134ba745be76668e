"""From an optimised tile function to PTX."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import llvmlite.binding as llvm

from tilewright import ops
from tilewright.codegen.code import Code, Element, llvm_type
from tilewright.codegen.gpu.atomics import Atomics
from tilewright.codegen.gpu.barriers import BARRIERS
from tilewright.codegen.gpu.block import BlockWriter
from tilewright.codegen.gpu.options import MOST_WARPS, GpuOptions
from tilewright.codegen.gpu.pipeline import Stages
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.shared import Buffer, Span
from tilewright.codegen.llvm import optimize_module, parse_module
from tilewright.codegen.nvidia.architecture import NvidiaArchitecture
from tilewright.codegen.nvidia.arithmetic import PTX_RULES
from tilewright.codegen.nvidia.assembly import ATTRIBUTES
from tilewright.codegen.nvidia.instructions import PtxMachine
from tilewright.codegen.nvidia.libraries import foreign_calls, link_libraries
from tilewright.codegen.nvidia.lines import LineTable
from tilewright.codegen.nvidia.products import NvidiaProducts
from tilewright.codegen.nvidia.register_copies import place_copies
from tilewright.codegen.nvidia.tensor_copy import TensorCopies, is_tensor_copy
from tilewright.codegen.nvidia.tensor_map import MAP_ALIGNMENT, MAP_BYTES, TensorMap
from tilewright.codegen.uses import Uses
from tilewright.errors import Location, Unsupported
from tilewright.ir.core import Function, Param
from tilewright.passes.axis_info import analyze_axes
from tilewright.passes.pipeline import prepare_for_gpu
from tilewright.target import NvidiaTarget

__all__ = ["PtxKernel", "generate", "prepare"]

_DEFAULTS = GpuOptions()
_LEVEL = 3  # of LLVM's optimiser
_REGISTER_BYTES = 256 << 10  # of a multiprocessor
_PARAMETER = re.compile(r"%p(\d+)\b")
_PIECES = (4, 16)  # in which tiles are moved where shared memory does not suffice


@dataclass(frozen=True)
class PtxKernel:
    """A kernel as PTX: one entry, for blocks of `num_warps`.

    `passed` numbers the function's parameters that the entry takes: what it does not read is not
    passed. Behind them it takes `tensor_maps`, each as 128 bytes by value. `shared_bytes` is the
    dynamic shared memory that a block needs. `assertions` are the messages and places of the
    kernel's assertions: where one fails, the variable `FAILURE` is its number and 1.
    `finds_libraries` says that functions of libraries are in it that no launch option names.
    `assembler_options` are for ptxas.
    """

    ptx: str
    llvm_ir: str
    symbol: str
    shared_bytes: int
    num_warps: int
    passed: tuple[int, ...] = ()
    tensor_maps: tuple[TensorMap, ...] = ()
    assertions: tuple[tuple[str, Location | None], ...] = ()
    finds_libraries: bool = False
    assembler_options: tuple[str, ...] = ()


def prepare(function: Function, target: NvidiaTarget, options: GpuOptions = _DEFAULTS) -> Function:
    """Return an optimised function as `generate` takes it."""
    uses_maps = target.has_tma and options.tensor_maps
    facts = functools.cache(lambda: analyze_axes(function))

    def keeps(op: ops.DescriptorOp) -> bool:
        return uses_maps and is_tensor_copy(op, function, facts())

    return prepare_for_gpu(
        function,
        target,
        fuses=options.enable_fp_fusion,
        precision=ops.InputPrecision(options.default_dot_input_precision),
        keeps=keeps,
    )


def generate(
    function: Function, target: NvidiaTarget, options: GpuOptions = _DEFAULTS
) -> PtxKernel:
    """Compile a function that went through `prepare`.

    Raises `Unsupported` for what this target has no code for, and where a block would need more
    shared memory than there is.
    """
    if options.num_warps > MOST_WARPS:
        raise Unsupported(
            f"{options.num_warps} warps for a program",
            location=function.location,
            hint=f"a block has up to {MOST_WARPS}: num_warps={MOST_WARPS}",
        )
    module = _fitted(function, target, options)
    if module.shared_bytes > target.shared_bytes:
        raise _too_much(function, module, target)
    ptx = module.lines.resolve(_ptx(module.text, target, function, options))
    return PtxKernel(
        ptx,
        module.text,
        module.symbol,
        module.shared_bytes,
        options.block_warps,
        module.passed,
        module.tensor_maps,
        module.assertions,
        _finds_libraries(function, options),
        tuple(shlex.split(options.ptx_options)),
    )


def _finds_libraries(function: Function, options: GpuOptions) -> bool:
    named = {library.name for library in options.extern_libs}
    return any(op.library not in named for op in foreign_calls(function))


def _too_much(function: Function, module: Module, target: NvidiaTarget) -> Unsupported:
    """The error of a kernel that does not fit: every buffer, and the line of the largest."""
    largest = max(module.too_much, key=lambda buffer: buffer.span.size, default=None)
    place = largest.location if largest is not None else None
    lines = "".join(f"\n      {buffer}" for buffer in module.too_much)
    return Unsupported(
        f"{function.name} needs {module.shared_bytes} bytes of shared memory, "
        f"{target.architecture} has {target.shared_bytes}; at the same time there are{lines}",
        location=place or function.location,
        hint="make the tiles of the largest smaller; fewer num_stages and moving tiles in pieces "
        "were tried",
    )


@dataclass(frozen=True)
class Module:
    """The LLVM module of a kernel, and what else it takes to run it.

    `runs_across` says that copies run ahead from one iteration of an outer loop to the next,
    `too_much` what was in shared memory when there was not enough.
    """

    text: str
    symbol: str
    shared_bytes: int
    passed: tuple[int, ...]
    tensor_maps: tuple[TensorMap, ...]
    assertions: tuple[tuple[str, Location | None], ...]
    lines: LineTable
    runs_across: bool
    too_much: tuple[Buffer, ...]


def _fitted(function: Function, target: NvidiaTarget, options: GpuOptions) -> Module:
    """Write a kernel with as many stages as there is shared memory for, else with less in it.

    If nothing helps, the module is the smallest. Tiles that are larger than all registers of a
    multiprocessor have no other place.
    """
    module = _with_fewer_stages(function, target, options)
    largest = max((buffer.span.size for buffer in module.too_much), default=0)
    if module.shared_bytes <= target.shared_bytes or largest > _REGISTER_BYTES:
        return module
    for form in _smaller_forms(function, target):
        stages = Stages(options.num_stages, 1, across=False)
        found = llvm_ir(form.function, form.target, options, stages, form.scratch_bytes)
        if found.shared_bytes <= target.shared_bytes:
            return found
        module = min(module, found, key=lambda module: module.shared_bytes)
    return module


def _with_fewer_stages(function: Function, target: NvidiaTarget, options: GpuOptions) -> Module:
    most = max([options.num_stages, *_asked_stages(function)])
    while True:
        for across in (True, False):
            stages = Stages(options.num_stages, most, across)
            module = llvm_ir(function, target, options, stages, target.shared_bytes)
            if module.shared_bytes <= target.shared_bytes or most < 2:
                return module
            if not module.runs_across:
                break
        most -= 1


class _Form(NamedTuple):
    """What is written instead of a kernel that does not fit, and for what.

    Tiles pass through at most `scratch_bytes` of shared memory on their way between threads.
    """

    function: Function
    target: NvidiaTarget
    scratch_bytes: int


def _smaller_forms(function: Function, target: NvidiaTarget) -> Iterator[_Form]:
    """Forms of a kernel with less and less in shared memory at once, each slower than the last.

    First tiles are moved in pieces, which products then read from registers. Then blocks of
    descriptors are copied without tensor maps, at last products get along without whole operands.
    """
    written = list(function.body.walk())
    for pieces in _PIECES:
        form = _Form(function, target, target.shared_bytes // pieces)
        yield form
    if any(isinstance(op, ops.DescriptorOp) for op in written):
        # What could be fused has been, and other sums count on separate roundings.
        form = form._replace(function=prepare_for_gpu(function, target, fuses=False))
        yield form
    if target.has_wgmma and any(isinstance(op, ops.Dot) for op in written):
        yield form._replace(target=target._replace(has_wgmma=False))


def _asked_stages(function: Function) -> Iterator[int]:
    """The numbers of stages that loops ask for themselves."""
    return (op.num_stages for op in function.body.walk() if isinstance(op, ops.For))


def llvm_ir(
    function: Function,
    target: NvidiaTarget,
    options: GpuOptions,
    stages: Stages,
    scratch_bytes: int,
) -> Module:
    """Write a kernel as LLVM IR; tiles that are moved take up to `scratch_bytes` at a time."""
    lines = LineTable(function.location)
    symbol = f"kernel_{function.name}" if function.name.isidentifier() else "kernel"
    code = Code(source_lines=lines, rules=PTX_RULES)
    machine = PtxMachine(code, target, scratch_bytes)
    copies, writer = _writers(function, target, options, machine, stages)
    used = {operand for op in function.body.walk() for operand in op.operands}
    for number, param in enumerate(function.params):
        text = f"%p{number}"
        if llvm_type(param.type.element) == "i1" and param in used:
            text = code.assign(f"icmp ne i8 {text}, 0")
        writer.puller.scalars[param] = Element(text, 1, 0)
    with writer.scope():
        writer.write_block(function.body.ops)
    writer.puller.shared.let_copies_read()  # before the program gives it up
    copies.barriers.prepare(machine)
    passed = _passed(code, function, options)
    parameters = [_declared(function.params[number], number) for number in passed]
    parameters += [
        f'ptr byval([{MAP_BYTES} x i8]) align {MAP_ALIGNMENT} "nvvm.grid_constant" %map{number}'
        for number in range(len(copies.maps))
    ]
    attributes = f'"nvvm.reqntid"="{options.block_warps * target.warp_size}"'
    if options.maxnreg is not None:
        attributes += f' "nvvm.maxnreg"="{options.maxnreg}"'
    elif any(isinstance(op, ops.Dot) for op in function.body.walk()):
        # Else ptxas spills registers to have more blocks on a multiprocessor.
        attributes += ' "nvvm.minctasm"="1"'
    size = writer.puller.shared.size_bytes
    text = _module(code, symbol, ", ".join(parameters), target, attributes, lines)
    return Module(
        text.replace(BARRIERS, Span(size, 0).address),
        symbol,
        size + copies.barriers.size_bytes,
        passed,
        tuple(copies.maps),
        tuple((op.message, op.location) for op in writer.diagnostics.assertions),
        lines,
        writer.control.runs_across,
        writer.puller.shared.too_much,
    )


def _passed(code: Code, function: Function, options: GpuOptions) -> tuple[int, ...]:
    """The numbers of the parameters that the entry takes: those that the code reads, or all."""
    numbers = range(len(function.params))
    if options.every_parameter:
        return tuple(numbers)
    lines = (*code.entry_lines, *code.sections[0].lines)
    read = {int(number) for line in lines for number in _PARAMETER.findall(line)}
    return tuple(number for number in numbers if number in read)


def _declared(param: Param, number: int) -> str:
    kind = llvm_type(param.type.element)
    return f"{'i8' if kind == 'i1' else kind} %p{number}"


def _writers(
    function: Function,
    target: NvidiaTarget,
    options: GpuOptions,
    machine: PtxMachine,
    stages: Stages,
) -> tuple[TensorCopies, BlockWriter]:
    """Return what writes the blocks of a function, and beside it what needs tensor maps."""
    facts = analyze_axes(function)
    uses = Uses(function, facts)
    architecture = NvidiaArchitecture(target)
    placement = Placement(function, facts, uses, architecture, options.block_warps)
    puller = Puller(machine.code, machine, uses, placement)
    has_tensor_loads = any(isinstance(op, ops.DescriptorLoad) for op in function.body.walk())
    atomics = Atomics(puller, placement, machine, has_tensor_loads=has_tensor_loads)
    copies = TensorCopies(puller, machine, function, atomics)
    products = NvidiaProducts(puller, machine)
    return copies, BlockWriter(puller, machine, atomics, products, copies, stages)


def _module(
    code: Code,
    symbol: str,
    parameters: str,
    target: NvidiaTarget,
    attributes: str,
    lines: LineTable,
) -> str:
    written = (*code.allocas, *code.entry_lines, *code.sections[0].lines)
    body = "\n".join(f"  {line}" for line in written)
    declarations = "\n".join((*code.definitions.values(), *code.declarations.values()))
    return f"""target datalayout = "{_data_layout(target)}"
target triple = "{target.triple}"
@shared = external addrspace(3) global [0 x i8], align 1024
define ptx_kernel void @{symbol}({parameters}) #0 {lines.attribute} {{
entry:
{body}
  ret void
}}
{declarations}
attributes #0 = {{ nounwind {attributes} }}
{ATTRIBUTES}
{lines.metadata()}
"""


# -- LLVM -----------------------------------------------------------------------------------------


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.set_option("tilewright", "-nvptx-short-ptr")


def _target_machine(target: NvidiaTarget) -> llvm.TargetMachine:
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.architecture, features=target.ptx_feature, opt=_LEVEL
    )


@functools.cache
def _data_layout(target: NvidiaTarget) -> str:
    with _target_machine(target) as machine:
        return str(machine.target_data)


def _ptx(text: str, target: NvidiaTarget, function: Function, options: GpuOptions) -> str:
    """Optimise a module and return its PTX.

    The pass builder is made from the target machine: passes that know no divergence move barriers
    and shuffles to where not all threads come by.
    """
    context = llvm.create_context()
    try:
        with parse_module(text, context) as module, _target_machine(target) as machine:
            link_libraries(module, context, function, options)
            optimize_module(module, machine, _LEVEL)
            return place_copies(str(machine.emit_assembly(module)))
    finally:
        context.close()

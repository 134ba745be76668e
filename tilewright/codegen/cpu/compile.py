"""From an optimised tile function to the LLVM module of a CPU kernel."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import ops
from tilewright.codegen.code import Code, Element, llvm_type
from tilewright.codegen.cpu.abi import CONTEXT_SCRATCH_OFFSET, CONTEXT_SHARED_OFFSET
from tilewright.codegen.cpu.block import BlockWriter
from tilewright.codegen.cpu.plan import Planner
from tilewright.codegen.llvm import module_header
from tilewright.errors import Location, Unsupported
from tilewright.ir.core import Function
from tilewright.passes.axis_info import analyze_axes
from tilewright.target import Host

__all__ = ["CpuKernel", "generate"]


@dataclass(frozen=True)
class CpuKernel:
    """A kernel as LLVM text: `void symbol(ptr args, i32 x, i32 y, i32 z, ptr context)`.

    `assertions` are the messages and places of the kernel's assertions: error code n is number n -
    1.
    """

    llvm_ir: str
    symbol: str
    scratch_bytes: int
    assertions: tuple[tuple[str, Location | None], ...]


def generate(function: Function, host: Host) -> CpuKernel:
    """Write the LLVM module of a kernel that went through `passes.pipeline.prepare_for_cpu`."""
    symbol = f"kernel_{function.name}" if function.name.isidentifier() else "kernel"
    _refuse_foreign_ops(function)
    facts = analyze_axes(function)
    planner = Planner(function, facts)
    code = Code(host.features)
    writer = BlockWriter(code, planner, facts, host)
    _read_arguments(code, writer, function)
    writer.write(function.body)
    writer.check_finished()
    return CpuKernel(
        _module(code, symbol, host),
        symbol,
        planner.arena.size_bytes,
        tuple((op.message, op.location) for op in planner.assertions),
    )


def _refuse_foreign_ops(function: Function) -> None:
    for op in function.body.walk():
        if isinstance(op, ops.ForeignCall):
            raise Unsupported(
                f"`{op.symbol}`, of a library for a GPU, on the CPU",
                location=op.location,
                hint="the functions of tl.extra.libdevice run everywhere",
            )
        if isinstance(op, ops.HardwareNumber):
            raise Unsupported(
                f"tl.extra.cuda.{op.register}() on the CPU",
                location=op.location,
                hint="launch on arrays of an NVIDIA GPU, or emulate one: `tilewright.emulate(...)`",
            )


def _read_arguments(code: Code, writer: BlockWriter, function: Function) -> None:
    """Each parameter has a slot of 8 bytes."""
    for number, param in enumerate(function.params):
        slot = code.assign(f"getelementptr i8, ptr %args, i64 {8 * number}")
        kind = llvm_type(param.type.element)
        if kind == "i1":
            byte = code.assign(f"load i8, ptr {slot}, align 8")
            text = code.assign(f"icmp ne i8 {byte}, 0")
        else:
            text = code.assign(f"load {kind}, ptr {slot}, align 8")
        writer.puller.scalars[param] = Element(text, 1, 0)


def _module(code: Code, symbol: str, host: Host) -> str:
    grid = "\n".join(
        f"  %grid.at{axis} = getelementptr i8, ptr %context, i64 {4 * axis}\n"
        f"  %grid{axis} = load i32, ptr %grid.at{axis}"
        for axis in range(3)
    )
    body = "\n".join(f"  {line}" for line in code.sections[0].lines)
    # Stores past the caches are not ordered before what tells other threads that they are done.
    fence = ""
    if code.streams and host.architecture == "x86_64":
        code.declarations["llvm.x86.sse.sfence"] = "declare void @llvm.x86.sse.sfence()"
        fence = "  call void @llvm.x86.sse.sfence()\n"
    definitions = "\n".join(code.definitions.values())
    declarations = "\n".join(code.declarations.values())
    parameters = "ptr noalias readonly %args, i32 %pid0, i32 %pid1, i32 %pid2, ptr %context"
    features = f'"target-cpu"="{host.cpu}" "target-features"="{host.feature_string}"'
    return f"""{module_header(host)}
{definitions}
define void @{symbol}({parameters}) #0 {{
entry:
  {chr(10).join(code.allocas)}
{grid}
  %scratch.at = getelementptr i8, ptr %context, i64 {CONTEXT_SCRATCH_OFFSET}
  %scratch = load ptr, ptr %scratch.at
  %shared.at = getelementptr i8, ptr %context, i64 {CONTEXT_SHARED_OFFSET}
  %shared = load ptr, ptr %shared.at
{body}
  br label %exit
exit:
{fence}  ret void
}}
{declarations}
!0 = !{{i32 1}}
attributes #0 = {{ nounwind "prefer-vector-width"="{host.vector_bits}" {features} }}
"""

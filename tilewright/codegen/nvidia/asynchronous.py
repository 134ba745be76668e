"""PTX instructions that run on while the thread goes ahead: copies, and products of warpgroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.codegen.nvidia.assembly import TOGETHER_WRITES, Assembly, listed
from tilewright.target import NvidiaTarget

__all__ = ["AsynchronousInstructions", "MatrixDescriptor"]

_GROUP_THREADS = 128
_CACHED_BYTES = 16  # only copies of 16 bytes can pass by the first-level cache


class MatrixDescriptor(NamedTuple):
    """Says where a product of warpgroups finds a part of an operand in shared memory.

    The lower half is the word `base` plus `offset`, the upper half is `upper`. They are put
    together where the product is started: elsewhere they would take registers for all of a loop.
    """

    base: str
    offset: int
    upper: int


class AsynchronousInstructions(Assembly):
    """Writes asynchronous instructions."""

    target: NvidiaTarget

    # -- copies to shared memory ------------------------------------------------------------------

    def copy_to_shared(self, to: str, origin: str, size_bytes: int, flag: str | None) -> None:
        level = "cg" if size_bytes == _CACHED_BYTES else "ca"
        name = f"llvm.nvvm.cp.async.{level}.shared.global.{size_bytes}"
        arguments = f"ptr addrspace(3) {to}, ptr addrspace(1) {origin}"
        if flag is None:
            self.code.call("void", name, arguments)
            return
        size = self.code.assign(f"select i1 {flag}, i32 {size_bytes}, i32 0")
        self.code.call("void", f"{name}.s", f"{arguments}, i32 {size}")

    def copy_by_one(
        self, to: str, origin: str, size_bytes: int, flag: str | None, thread: str
    ) -> None:
        text = f"@$0 cp.async.ca.shared.global [$1], [$2], {size_bytes}"
        arguments = [f"i1 {thread}", f"ptr addrspace(3) {to}", f"ptr addrspace(1) {origin}"]
        if flag is None:
            self._by_flag(f"{text};", arguments, "brl")
            return
        size = self.code.assign(f"select i1 {flag}, i32 {size_bytes}, i32 0")
        self._by_flag(f"{text}, $3;", [*arguments, f"i32 {size}"], "brlr")

    def commit_copies(self) -> None:
        self.code.call("void", "llvm.nvvm.cp.async.commit.group", "")

    def wait_for_copies(self, running: int) -> None:
        self.code.call("void", "llvm.nvvm.cp.async.wait.group", f"i32 immarg {running}")

    def fence_async_proxy(self, *, everywhere: bool = False) -> None:
        where = "" if everywhere else ".shared_cta"
        self.code.call("void", f"llvm.nvvm.fence.proxy.async{where}", "")

    # -- copies by tensor maps ----------------------------------------------------------------

    def start_barrier(self, barrier: str, arrivals: int) -> None:
        self.code.call(
            "void", "llvm.nvvm.mbarrier.init.shared", f"ptr addrspace(3) {barrier}, i32 {arrivals}"
        )

    def arrive_by_warp(self, barrier: str) -> None:
        lane = self.code.call("i32", "llvm.nvvm.read.ptx.sreg.laneid", "", 0)
        first = self.code.assign(f"icmp eq i32 {lane}, 0", 0)
        text = "@$0 mbarrier.arrive.shared::cta.b64 _, [$1];"
        arguments = [f"i1 {first}", f"ptr addrspace(3) {barrier}"]
        self.assembly(text, ["b", "r", "~{memory}"], arguments, "void", 0, TOGETHER_WRITES)

    def arrive_behind_copies(self, barrier: str) -> None:
        name = "llvm.nvvm.cp.async.mbarrier.arrive.noinc.shared"
        self.code.call("void", name, f"ptr addrspace(3) {barrier}")

    def publish_barriers(self) -> None:
        self.code.call("void", "llvm.nvvm.fence.mbarrier_init.release.cluster", "")

    def elected(self) -> str:
        elected = self.code.call("{ i32, i1 }", "llvm.nvvm.elect.sync", "i32 -1")
        return self.code.assign(f"extractvalue {{ i32, i1 }} {elected}, 1")

    def expect_bytes(self, barrier: str, count: int, flag: str) -> None:
        text = f"@$0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], {count};"
        self._by_flag(text, [f"i1 {flag}", f"ptr addrspace(3) {barrier}"], "br")

    def await_phase(self, barrier: str, phase: str) -> None:
        code = self.code
        spin, done = code.label("wait"), code.label("arrived")
        code.line(f"br label %{spin}")
        code.place(spin)
        name = "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta"
        came = code.call("i1", name, f"ptr addrspace(3) {barrier}, i32 {phase}")
        code.line(f"br i1 {came}, label %{done}, label %{spin}")
        code.place(done)

    def copy_box_to_shared(
        self, to: str, tensor_map: str, offsets: Sequence[str], barrier: str, flag: str
    ) -> None:
        places = ", ".join(f"${4 + number}" for number in range(len(offsets)))
        text = (
            f"@$0 cp.async.bulk.tensor.{len(offsets)}d.{self.target.own_shared}.global.tile"
            f".mbarrier::complete_tx::bytes [$1], [$2, {{{places}}}], [$3];"
        )
        arguments = [f"i1 {flag}", f"ptr addrspace(3) {to}", f"ptr {tensor_map}"]
        arguments += [f"ptr addrspace(3) {barrier}", *(f"i32 {offset}" for offset in offsets)]
        self._by_flag(text, arguments, "brlr" + "r" * len(offsets))

    def copy_row_to_shared(
        self, to: str, origin: str, size_bytes: int, barrier: str, flag: str
    ) -> None:
        text = (
            f"@$0 cp.async.bulk.{self.target.own_shared}.global.mbarrier::complete_tx::bytes "
            f"[$1], [$2], {size_bytes}, [$3];"
        )
        place = self.code.assign(f"addrspacecast ptr {origin} to ptr addrspace(1)")
        arguments = [f"i1 {flag}", f"ptr addrspace(3) {to}", f"ptr addrspace(1) {place}"]
        self._by_flag(text, [*arguments, f"ptr addrspace(3) {barrier}"], "brlr")

    def _by_flag(self, text: str, arguments: Sequence[str], constraints: str) -> None:
        """Write what one thread does: by a flag, as a branch would part the threads of its warp."""
        self.assembly(text, [*constraints, "~{memory}"], arguments, "void", 0, TOGETHER_WRITES)

    def copy_box_from_shared(
        self, origin: str, tensor_map: str, offsets: Sequence[str], reduction: str, flag: str
    ) -> None:
        places = ", ".join(f"${3 + number}" for number in range(len(offsets)))
        name = "cp.reduce.async.bulk" if reduction else "cp.async.bulk"
        how = f".{reduction}" if reduction else ""
        text = (
            f"@$0 {name}.tensor.{len(offsets)}d.global.shared::cta{how}.tile.bulk_group "
            f"[$2, {{{places}}}], [$1];"
        )
        arguments = [f"i1 {flag}", f"ptr addrspace(3) {origin}", f"ptr {tensor_map}"]
        arguments += [f"i32 {offset}" for offset in offsets]
        self._by_flag(text, arguments, "brl" + "r" * len(offsets))

    def commit_stores(self) -> None:
        self.code.call("void", "llvm.nvvm.cp.async.bulk.commit.group", "")

    def wait_for_stores(self, *, only_reads: bool) -> None:
        what = ".read" if only_reads else ""
        self.code.call("void", f"llvm.nvvm.cp.async.bulk.wait.group{what}", "i32 immarg 0")

    # -- products of warpgroups -------------------------------------------------------------------

    def hold_words(self, words: Sequence[str]) -> list[str]:
        """Return words in registers, written here: else LLVM writes constants behind the fence."""
        return self._pass_through("", words, "i32")

    def begin_products(self, sums: Sequence[str], kind: str) -> list[str]:
        """Let the registers that have been written be seen by products.

        Return the sums to which products add, each in a register that is nothing else from here on:
        LLVM writes no copy behind the fence.
        """
        if sums:
            return self._pass_through("wgmma.fence.sync.aligned;", sums, kind)
        self.code.call("void", "llvm.nvvm.wgmma.fence.sync.aligned", "")
        return []

    def commit_products(self) -> None:
        self.code.call("void", "llvm.nvvm.wgmma.commit_group.sync.aligned", "")

    def wait_for_products(self, running: int, sums: Sequence[str], kind: str) -> list[str]:
        if sums:
            return self._pass_through(f"wgmma.wait_group.sync.aligned {running};", sums, kind)
        self.code.call("void", "llvm.nvvm.wgmma.wait_group.sync.aligned", f"i64 immarg {running}")
        return []

    def _pass_through(self, text: str, sums: Sequence[str], kind: str) -> list[str]:
        """Write an instruction that changes values, as far as LLVM knows; return them."""
        count, letter = len(sums), "r" if kind == "i32" else "f"
        constraints = [f"={letter}"] * count + [str(i) for i in range(count)] + ["~{memory}"]
        arguments = [f"{kind} {s}" for s in sums]
        return self.assembly(text, constraints, arguments, kind, count, TOGETHER_WRITES)

    def start_product(
        self, shape: tuple[int, int, int], element: str, a: Sequence[str] | MatrixDescriptor,
        b: MatrixDescriptor, sums: Sequence[str], *, transposed: tuple[bool, bool],
    ) -> list[str]:  # fmt: skip
        """Start a product of 64 rows; return the registers in which the sums will be.

        `a` is in shared memory, or the words of a fragment in registers. It is added to `sums`,
        where there are any.
        """
        m, n, k = shape
        count = m * n // _GROUP_THREADS
        names = {"i8": "s8", "fp16": "f16", "fp8e4nv": "e4m3", "fp8e5": "e5m2"}
        name = names.get(element, element)
        whole = element in {"i8", "u8"}
        kind, letter, result = ("i32", "r", "s32") if whole else ("float", "f", "f32")
        words = [a.base] if isinstance(a, MatrixDescriptor) else list(a)
        first, second = count, count + len(words)
        made = _descriptor("b", b, f"${second}")
        if isinstance(a, MatrixDescriptor):
            made, left = made + _descriptor("a", a, f"${first}"), "a"
        else:
            left = listed(first, len(words))
        scales = "" if whole else ", 1, 1"
        if name in {"f16", "bf16"}:
            chosen = transposed if isinstance(a, MatrixDescriptor) else transposed[1:]
            scales += "".join(f", {int(flag)}" for flag in chosen)
        text = (
            "{\\0A.reg .pred p;\\0Asetp.ne.b32 p, " + str(int(bool(sums))) + f", 0;\\0A{made}"
            f"wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{result}.{name}.{name} "
            f"{listed(0, count)}, {left}, b, p{scales};\\0A}}"
        )
        constraints = [f"={letter}"] * count + ["r"] * (len(words) + 1)
        constraints += [str(i) for i in range(len(sums))]
        arguments = [f"i32 {word}" for word in (*words, b.base)]
        arguments += [f"{kind} {s}" for s in sums]
        return self.assembly(text, constraints, arguments, kind, count, TOGETHER_WRITES)


def _descriptor(name: str, descriptor: MatrixDescriptor, base: str) -> str:
    """Assembly that puts a descriptor into a register of this name."""
    lines = (
        f".reg .b64 {name};",
        f".reg .b32 {name}l, {name}u;",
        f"add.s32 {name}l, {base}, {descriptor.offset};",
        f"mov.b32 {name}u, {descriptor.upper};",
        f"mov.b64 {name}, {{{name}l, {name}u}};",
    )
    return "".join(f"{line}\\0A" for line in lines)

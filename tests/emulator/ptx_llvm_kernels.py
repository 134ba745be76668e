"""Kernels as LLVM IR, and what LLVM's NVPTX back end makes of them."""

# ruff: noqa: E501 - a line of IR is an instruction

from functools import cache

import llvmlite.binding as llvm

INTRINSICS = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare void @llvm.nvvm.barrier.cta.sync.aligned.count(i32, i32)
declare i32 @llvm.nvvm.shfl.sync.idx.i32(i32, i32, i32, i32)
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)
declare { i32, i1 } @llvm.nvvm.elect.sync(i32)
declare void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3), i32)
declare void @llvm.nvvm.fence.mbarrier_init.release.cluster()
declare i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta(ptr addrspace(3), i32)
declare i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3), i32)
declare void @llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d(ptr addrspace(7), ptr addrspace(3), ptr, \
i32, i32, i16, i64, i1, i1, i32)
declare void @llvm.nvvm.cp.async.bulk.tensor.s2g.tile.2d(ptr addrspace(3), ptr, i32, i32, i64, i1)
declare void @llvm.nvvm.cp.async.bulk.commit.group()
declare void @llvm.nvvm.cp.async.bulk.wait.group.read(i32 immarg)
declare void @llvm.nvvm.fence.proxy.async.shared_cta()
declare void @llvm.nvvm.wgmma.fence.sync.aligned()
declare void @llvm.nvvm.wgmma.commit_group.sync.aligned()
declare void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 immarg)
declare void @llvm.nvvm.setmaxnreg.inc.sync.aligned.u32(i32 immarg)
declare void @llvm.nvvm.setmaxnreg.dec.sync.aligned.u32(i32 immarg)
declare float @llvm.exp2.f32(float)
declare float @llvm.maxnum.f32(float, float)
"""


@cache
def compile_to_ptx(text: str, cpu: str = "sm_90a") -> str:
    """Optimise IR and return the PTX."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    machine = target.create_target_machine(cpu=cpu, features="+ptx86", opt=3)
    head = f'target datalayout = "{machine.target_data}"\ntarget triple = "nvptx64-nvidia-cuda"\n'
    context = llvm.create_context()
    module = llvm.parse_assembly(head + text, context)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    ptx = machine.emit_assembly(module)
    module.close()
    return ptx


SOFTMAX = (
    INTRINSICS
    + """
@partial = internal addrspace(3) global [8 x float] undef, align 16

define ptx_kernel void @softmax(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n) "nvvm.reqntid"="128" {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %row = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %start = mul i32 %row, %n
  %place = add i32 %start, %t
  %from = getelementptr float, ptr addrspace(1) %x, i32 %place
  %inside = icmp slt i32 %t, %n
  br i1 %inside, label %read, label %ready
read:
  %loaded = load float, ptr addrspace(1) %from, align 4
  br label %ready
ready:
  %v = phi float [ %loaded, %read ], [ 0xFFF0000000000000, %0 ]
"""
    + "".join(
        f"""  %s{i} = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m{i}, i32 {16 >> i}, i32 31)
  %m{i + 1} = call float @llvm.maxnum.f32(float %m{i}, float %s{i})
"""
        for i in range(5)
    ).replace("%m0", "%v")
    + """
  %warp = lshr i32 %t, 5
  %lane = and i32 %t, 31
  %slot = getelementptr float, ptr addrspace(3) @partial, i32 %warp
  %first = icmp eq i32 %lane, 0
  br i1 %first, label %put, label %join
put:
  store float %m5, ptr addrspace(3) %slot, align 4
  br label %join
join:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %four = load <4 x float>, ptr addrspace(3) @partial, align 16
  %f0 = extractelement <4 x float> %four, i32 0
  %f1 = extractelement <4 x float> %four, i32 1
  %f2 = extractelement <4 x float> %four, i32 2
  %f3 = extractelement <4 x float> %four, i32 3
  %g0 = call float @llvm.maxnum.f32(float %f0, float %f1)
  %g1 = call float @llvm.maxnum.f32(float %f2, float %f3)
  %max = call float @llvm.maxnum.f32(float %g0, float %g1)
  %d = fsub float %v, %max
  %scaled = fmul float %d, 0x3FF7154760000000
  %e = call float @llvm.exp2.f32(float %scaled)
"""
    + "".join(
        f"""  %r{i} = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %a{i}, i32 {16 >> i}, i32 31)
  %a{i + 1} = fadd float %a{i}, %r{i}
"""
        for i in range(5)
    ).replace("%a0", "%e")
    + """
  %slot2 = getelementptr float, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @partial, i32 16), i32 %warp
  br i1 %first, label %put2, label %join2
put2:
  store float %a5, ptr addrspace(3) %slot2, align 4
  br label %join2
join2:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %sums = load <4 x float>, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @partial, i32 16), align 16
  %h0 = extractelement <4 x float> %sums, i32 0
  %h1 = extractelement <4 x float> %sums, i32 1
  %h2 = extractelement <4 x float> %sums, i32 2
  %h3 = extractelement <4 x float> %sums, i32 3
  %i0 = fadd float %h0, %h1
  %i1 = fadd float %h2, %h3
  %total = fadd float %i0, %i1
  %out = fdiv float %e, %total
  %to = getelementptr float, ptr addrspace(1) %y, i32 %place
  br i1 %inside, label %write, label %end
write:
  store float %out, ptr addrspace(1) %to, align 4
  br label %end
end:
  ret void
}
"""
)

STAGES, M, N, K = 2, 64, 64, 32  # tile of one block: 64 x 64, 32 of K at a time
A_BYTES, B_BYTES = M * K * 2, N * K * 2
BARRIERS = STAGES * (A_BYTES + B_BYTES)
SHARED_BYTES = BARRIERS + 16 * STAGES


def _at(offset: str | int) -> str:
    return f"getelementptr (i8, ptr addrspace(3) @smem, i32 {offset})"


def _wgmma() -> str:
    count = N // 2
    outputs = ",".join(["=f"] * count)
    tied = ",".join(str(i) for i in range(count))
    registers = ", ".join(f"${i}" for i in range(count))
    form = f"wgmma.mma_async.sync.aligned.m64n{N}k16.f32.bf16.bf16"
    text = f"{{\\0A.reg .pred p;\\0Asetp.ne.b32 p, ${2 * count + 2}, 0;\\0A"
    text += f"{form} {{{registers}}}, ${2 * count}, ${2 * count + 1}, p, 1, 1, 0, 0;\\0A}}"
    return f'asm sideeffect "{text}", "{outputs},{tied},l,l,r"'


def matmul() -> str:
    """A product of bf16 by one producer warpgroup (TMA) and one consumer (wgmma), C by TMA."""
    count = N // 2
    struct = "{ " + ", ".join(["float"] * count) + " }"
    lines = [INTRINSICS, "@smem = external addrspace(3) global [0 x i8], align 1024"]
    maps = ", ".join(f'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" %{x}' for x in "abc")
    lines.append(f"define ptx_kernel void @matmul({maps}, i32 %k) #0 {{")
    lines.append("""
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %bx = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %by = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()""")
    lines.append(f"  %m = mul i32 %bx, {M}\n  %n = mul i32 %by, {N}\n  %steps = udiv i32 %k, {K}")
    lines.append("""
  %group0 = lshr i32 %t, 7
  %group = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %group0, i32 0, i32 31)
  %is0 = icmp eq i32 %t, 0
  br i1 %is0, label %init, label %ready
init:""")
    for i in range(2 * STAGES):
        place = _at(BARRIERS + 8 * i)
        lines.append(
            f"  call void @llvm.nvvm.mbarrier.init.shared(ptr addrspace(3) {place}, i32 1)"
        )
    lines.append(f"""
  call void @llvm.nvvm.fence.mbarrier_init.release.cluster()
  br label %ready
ready:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %producer = icmp eq i32 %group, 0
  br i1 %producer, label %produce, label %consume
produce:
  call void @llvm.nvvm.setmaxnreg.dec.sync.aligned.u32(i32 40)
  %elected = call {{ i32, i1 }} @llvm.nvvm.elect.sync(i32 -1)
  %leads = extractvalue {{ i32, i1 }} %elected, 1
  %warp0 = icmp ult i32 %t, 32
  %issues = and i1 %leads, %warp0
  br i1 %issues, label %load, label %end
load:
  %i = phi i32 [ 0, %produce ], [ %i1, %issue ]
  %stage = urem i32 %i, {STAGES}
  %round = udiv i32 %i, {STAGES}
  %parity0 = and i32 %round, 1
  %parity = xor i32 %parity0, 1
  %bar = shl i32 %stage, 3
  %full = getelementptr i8, ptr addrspace(3) {_at(BARRIERS)}, i32 %bar
  %empty = getelementptr i8, ptr addrspace(3) {_at(BARRIERS + 8 * STAGES)}, i32 %bar
  br label %wait
wait:
  %ok = call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3) %empty, i32 %parity)
  br i1 %ok, label %issue, label %wait
issue:
  %token = call i64 @llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta(ptr addrspace(3) %full, \
i32 {A_BYTES + B_BYTES})
  %oa = mul i32 %stage, {A_BYTES}
  %ob0 = mul i32 %stage, {B_BYTES}
  %ob = add i32 %ob0, {STAGES * A_BYTES}
  %pa = getelementptr i8, ptr addrspace(3) @smem, i32 %oa
  %pb = getelementptr i8, ptr addrspace(3) @smem, i32 %ob
  %qa = addrspacecast ptr addrspace(3) %pa to ptr addrspace(7)
  %qb = addrspacecast ptr addrspace(3) %pb to ptr addrspace(7)
  %kk = mul i32 %i, {K}
  call void @llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d(ptr addrspace(7) %qa, ptr addrspace(3) %full, \
ptr %a, i32 %kk, i32 %m, i16 0, i64 0, i1 0, i1 0, i32 0)
  call void @llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d(ptr addrspace(7) %qb, ptr addrspace(3) %full, \
ptr %b, i32 %kk, i32 %n, i16 0, i64 0, i1 0, i1 0, i32 0)
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %steps
  br i1 %more, label %load, label %end
consume:
  call void @llvm.nvvm.setmaxnreg.inc.sync.aligned.u32(i32 232)
  %base = ptrtoint ptr addrspace(3) @smem to i32
  br label %loop
loop:
  %j = phi i32 [ 0, %consume ], [ %j1, %multiply ]
  %keep = phi i32 [ 0, %consume ], [ 1, %multiply ]""")
    lines += [f"  %c{i} = phi float [ 0.0, %consume ], [ %y{i}, %multiply ]" for i in range(count)]
    lines.append(f"""
  %jstage = urem i32 %j, {STAGES}
  %jround = udiv i32 %j, {STAGES}
  %jparity = and i32 %jround, 1
  %jbar = shl i32 %jstage, 3
  %jfull = getelementptr i8, ptr addrspace(3) {_at(BARRIERS)}, i32 %jbar
  %jempty = getelementptr i8, ptr addrspace(3) {_at(BARRIERS + 8 * STAGES)}, i32 %jbar
  br label %jwait
jwait:
  %jok = call i1 @llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta(ptr addrspace(3) %jfull, i32 %jparity)
  br i1 %jok, label %multiply, label %jwait
multiply:
  %ja = mul i32 %jstage, {A_BYTES}
  %jb0 = mul i32 %jstage, {B_BYTES}
  %jb = add i32 %jb0, {STAGES * A_BYTES}""")
    descriptor = (2 << 62) | ((512 >> 4) << 32) | (1 << 16)
    for x in "ab":
        lines.append(f"""
  %sum{x} = add i32 %base, %j{x}
  %shift{x} = lshr i32 %sum{x}, 4
  %wide{x} = zext i32 %shift{x} to i64
  %d{x} = or i64 %wide{x}, {descriptor - (1 << 64)}
  %e{x} = add i64 %d{x}, 2""")
    lines.append("  call void @llvm.nvvm.wgmma.fence.sync.aligned()")
    for name, source, d, keep in (("x", "c", "d", "%keep"), ("y", "x", "e", "1")):
        arguments = ", ".join(f"float %{source}{i}" for i in range(count))
        lines.append(
            f"  %{name} = call {struct} {_wgmma()}({arguments}, i64 %{d}a, i64 %{d}b, i32 {keep})"
        )
        lines += [f"  %{name}{i} = extractvalue {struct} %{name}, {i}" for i in range(count)]
    lines.append("""
  call void @llvm.nvvm.wgmma.commit_group.sync.aligned()
  call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)
  %inner = and i32 %t, 127
  %first = icmp eq i32 %inner, 0
  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 128)
  call void asm sideeffect "{\\0A.reg .pred p;\\0Asetp.ne.b32 p, $1, 0;\\0A\
@p mbarrier.arrive.shared::cta.b64 _, [$0];\\0A}", "r,r,~{memory}"(ptr addrspace(3) %jempty, i1 %first)
  %j1 = add i32 %j, 1
  %again = icmp ult i32 %j1, %steps
  br i1 %again, label %loop, label %epilogue
epilogue:
  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 128)
  %w = lshr i32 %inner, 5
  %lane = and i32 %t, 31
  %quad = lshr i32 %lane, 2
  %pair = and i32 %lane, 3
  %r0 = shl i32 %w, 4
  %row = add i32 %r0, %quad""")
    lines.append(f"  %rowbytes = mul i32 %row, {N * 4}\n  %pairbytes = shl i32 %pair, 3")
    lines.append("  %corner = add i32 %rowbytes, %pairbytes")
    lines.append("  %spot = getelementptr i8, ptr addrspace(3) @smem, i32 %corner")
    for i in range(count):
        offset = 8 * N * 4 * (i >> 1 & 1) + 32 * (i >> 2) + 4 * (i & 1)
        lines.append(f"  %z{i} = getelementptr i8, ptr addrspace(3) %spot, i32 {offset}")
        lines.append(f"  store float %y{i}, ptr addrspace(3) %z{i}, align 4")
    lines.append("""
  call void @llvm.nvvm.fence.proxy.async.shared_cta()
  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 128)
  br i1 %first, label %store, label %end
store:
  call void @llvm.nvvm.cp.async.bulk.tensor.s2g.tile.2d(ptr addrspace(3) @smem, ptr %c, i32 %n, i32 %m, i64 0, i1 0)
  call void @llvm.nvvm.cp.async.bulk.commit.group()
  call void @llvm.nvvm.cp.async.bulk.wait.group.read(i32 0)
  br label %end
end:
  ret void
}
attributes #0 = { nounwind "nvvm.reqntid"="256" "nvvm.minctasm"="1" "nvvm.maxnreg"="168" }""")
    return "\n".join(lines)

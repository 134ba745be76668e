"""Kernels that run one matrix instruction, and the layouts that the manual gives its operands."""

import ml_dtypes
import numpy as np

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
LANE = np.arange(32)
GROUP, THREAD = LANE // 4, LANE % 4

KINDS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
}


# -- mma: (row, column) of element i of each lane, from the PTX manual ----------------------------


def a_elements(type, k):
    """Rows and columns of A, (elements, lanes)."""
    if type in {"f16", "bf16"}:
        count = k // 2
        rows = [GROUP + (8 if i % 4 >= 2 else 0) for i in range(count)]
        columns = [THREAD * 2 + i % 2 + (8 if i >= 4 else 0) for i in range(count)]
    elif type in {"tf32", "f64"}:
        count = k // 2
        rows = [GROUP + 8 * (i % 2) for i in range(count)]
        columns = [THREAD + 4 * (i // 2) for i in range(count)]
    else:
        count = k // 2
        rows = [GROUP + (8 if i % 8 >= 4 else 0) for i in range(count)]
        columns = [THREAD * 4 + i % 4 + (16 if i >= 8 else 0) for i in range(count)]
    return np.array(rows), np.array(columns)


def b_elements(type, k):
    """Rows (k) and columns (n) of B."""
    each = {"f16": 2, "bf16": 2, "tf32": 1, "f64": 1}.get(type, 4)
    rows = [THREAD * each + i % each + i // each * 4 * each for i in range(k // 4)]
    return np.array(rows), np.array([GROUP] * (k // 4))


def c_elements():
    """Rows and columns of C and D."""
    rows = [GROUP + (8 if i >= 2 else 0) for i in range(4)]
    return np.array(rows), np.array([THREAD * 2 + i % 2 for i in range(4)])


def held(matrix, elements):
    """What the lanes hold, as registers: (registers, lanes) of 32 or 64 bits."""
    rows, columns = elements
    values = np.ascontiguousarray(matrix[rows, columns].T)
    word = np.uint64 if matrix.dtype.itemsize == 8 else np.uint32
    return np.ascontiguousarray(values.view(word).T)


def registers(prefix, count):
    return ", ".join(f"%{prefix}{i}" for i in range(count))


def fragment_kernel(instruction, counts, bits=32):
    """Load registers (registers, lanes) of the inputs, run an instruction, store the last ones.

    `counts` are the registers of each input and of the result.
    """
    size = bits // 8
    lines = [
        HEAD,
        ".visible .entry k(",
        ",\n".join(f".param .u64 p{i}" for i in range(len(counts))),
    ]
    lines.append(")\n{\n.reg .b64 %address, %offset;\n.reg .b32 %thread;\n.reg .pred %true;")
    lines.append("mov.u32 %thread, %tid.x;\nsetp.eq.u32 %true, 0, 0;")
    lines.append(f"mul.wide.u32 %offset, %thread, {size};")
    for i, count in enumerate(counts):
        name = "abcd"[i] if i < len(counts) - 1 else "d"
        lines.append(f".reg .b{bits} %{name}<{count}>;\nld.param.u64 %address, [p{i}];")
        lines.append("add.s64 %address, %address, %offset;")
        if name != "d":
            for j in range(count):
                lines += [f"ld.global.b{bits} %{name}{j}, [%address+{j * 32 * size}];"]
    lines.append(instruction)
    for j in range(counts[-1]):
        lines += [f"st.global.b{bits} [%address+{j * 32 * size}], %d{j};"]
    return "\n".join([*lines, "ret;\n}\n"])


# -- wgmma: images of matrices in shared memory ---------------------------------------------------

SWIZZLE_CODES = {0: 0, 128: 1, 64: 2, 32: 3}


def _put(values, address, swizzle, size):
    phase = (address >> 7) & (swizzle // 16 - 1 if swizzle else 0)
    address = address ^ (phase << 4)
    image = np.zeros(size, np.uint8)
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, -1)
    for i in range(values.dtype.itemsize):
        image[address + i] = raw[..., i]
    return image


def k_major(matrix, swizzle):
    """Image and descriptor (without the address) of (rows, k), neighbours along k."""
    rows, k = np.indices(matrix.shape)
    byte = k * matrix.dtype.itemsize
    size = matrix.shape[0] * max(matrix.shape[1] * matrix.dtype.itemsize, swizzle)
    if not swizzle:
        chunks = matrix.shape[1] * matrix.dtype.itemsize // 16
        address = rows // 8 * 128 * chunks + byte // 16 * 128 + rows % 8 * 16 + byte % 16
        return _put(matrix, address, 0, size), _descriptor(128, 128 * chunks, 0)
    address = byte // swizzle * matrix.shape[0] * swizzle + rows * swizzle + byte % swizzle
    return _put(matrix, address, swizzle, size), _descriptor(16, 8 * swizzle, swizzle)


def mn_major(matrix, swizzle):
    """Image and descriptor of (rows, k) of 16 bits, neighbours along the rows."""
    rows, k = np.indices(matrix.shape)
    count = matrix.shape[1]
    if not swizzle:
        address = rows // 8 * 128 * (count // 8) + k // 8 * 128 + k % 8 * 16 + rows % 8 * 2
        return _put(matrix, address, 0, matrix.nbytes), _descriptor(128, 128 * (count // 8), 0)
    chunk = swizzle // 2
    address = rows // chunk * count * swizzle + k * swizzle + rows % chunk * 2
    return _put(matrix, address, swizzle, matrix.nbytes), _descriptor(
        count * swizzle, 8 * swizzle, swizzle
    )


def _descriptor(leading, stride, swizzle):
    return leading >> 4 << 16 | stride >> 4 << 32 | SWIZZLE_CODES[swizzle] << 62


def warpgroup_kernel(form, a_bytes, b_bytes, accumulators, *, a_registers=0, flags="", steps=1):
    """Copy images to shared memory, run `steps` products that advance by 32 bytes, store D.

    Parameters: image of A (or its registers), image of B, descriptors of A and B, C and D as
    (registers, 128).
    """
    a_operand = "{" + registers("a", a_registers) + "}" if a_registers else "%da"
    lines = [HEAD, ".extern .shared .align 1024 .b8 smem[];", ".visible .entry k("]
    lines.append(".param .u64 pa, .param .u64 pb, .param .u64 xa, .param .u64 xb, .param .u64 pd")
    lines.append(")\n.reqntid 128\n{")
    lines.append(".reg .b64 %address, %offset, %da, %db, %base;\n.reg .b32 %thread, %at, %i;")
    lines.append(f".reg .b32 %d<{accumulators}>;\n.reg .b32 %a<4>;\n.reg .pred %p, %true;")
    lines.append(".reg .b32 %v<4>;\nmov.u32 %thread, %tid.x;\nsetp.eq.u32 %true, 0, 0;")
    if not a_registers:
        lines += _copy("pa", 0, a_bytes)
    lines += _copy("pb", a_bytes, b_bytes)
    lines.append("fence.proxy.async.shared::cta;\nbar.sync 0;\nld.param.u64 %da, [xa];")
    lines.append("ld.param.u64 %db, [xb];\nmov.b32 %at, smem;\nshr.u32 %at, %at, 4;")
    lines.append(
        f"cvt.u64.u32 %base, %at;\nadd.s64 %da, %da, %base;\nadd.s64 %base, %base, {a_bytes >> 4};"
    )
    lines.append("add.s64 %db, %db, %base;\nld.param.u64 %address, [pd];")
    lines.append("mul.wide.u32 %offset, %thread, 4;\nadd.s64 %address, %address, %offset;")
    for j in range(accumulators):
        lines.append(f"ld.global.b32 %d{j}, [%address+{j * 512}];")
    if a_registers:
        lines.append("ld.param.u64 %base, [pa];\nadd.s64 %base, %base, %offset;")
        for j in range(a_registers):
            lines.append(f"ld.global.b32 %a{j}, [%base+{j * 512}];")
    lines.append("wgmma.fence.sync.aligned;")
    for _ in range(steps):
        lines.append(
            f"wgmma.mma_async.sync.aligned.{form} {{{registers('d', accumulators)}}}, {a_operand}, "
            f"%db, %true{flags};\nadd.s64 %da, %da, 2;\nadd.s64 %db, %db, 2;"
        )
    lines.append("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
    for j in range(accumulators):
        lines.append(f"st.global.b32 [%address+{j * 512}], %d{j};")
    return "\n".join([*lines, "ret;\n}\n"])


def _copy(parameter, offset, size):
    return [
        f"ld.param.u64 %address, [{parameter}];\nmul.wide.u32 %offset, %thread, 16;",
        "add.s64 %address, %address, %offset;\nmov.b32 %at, smem;",
        f"shl.b32 %i, %thread, 4;\nadd.s32 %at, %at, %i;\nadd.s32 %at, %at, {offset};",
        f"${parameter}_loop:",
        f"setp.ge.u32 %p, %i, {size};\n@%p bra ${parameter}_end;",
        "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%address];",
        "st.shared.v4.b32 [%at], {%v0, %v1, %v2, %v3};",
        "add.s32 %i, %i, 2048;\nadd.s32 %at, %at, 2048;\nadd.s64 %address, %address, 2048;",
        f"bra ${parameter}_loop;\n${parameter}_end:",
    ]


def wgmma_elements(n):
    """Rows and columns of D: (elements, 128 threads)."""
    thread = np.arange(128)
    lane, warp = thread % 32, thread // 32
    i = np.arange(n // 2)[:, None]
    rows = 16 * warp + lane // 4 + 8 * ((i >> 1) & 1)
    return rows, np.broadcast_to(8 * (i >> 2) + 2 * (lane & 3) + (i & 1), rows.shape)

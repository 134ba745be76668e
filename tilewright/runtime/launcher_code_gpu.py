"""The part of the launcher that GPUs have to themselves, as LLVM IR; see `launcher_code.py`.

The keys of a tensor say what kind of device it is on, and whether its memory is just its elements.
Where that is it says by PyTorch's C interface, without any object of Python being made; where there
is none, by DLPack's C functions: a `DLTensor` has its address at 0, its device at 8 (kind and
number), its dtype at 20, and an offset in bytes at 40. Those also say what the current stream of a
device is.

The launch is one call of the driver: `cuLaunchKernel(function, grid, block, shared memory, stream,
null, parameters)` or, where it has attributes, `cuLaunchKernelEx(config, function, null,
parameters)`. A `CUlaunchConfig` has the sizes of the grid at 0, those of a block at 12, shared
memory at 24, the stream at 32, attributes at 40 and their number at 48. `parameters` say where all
of them lie, packed as the kernel finds them: the driver takes longer for the address of each. What
the kernel takes is copied there from the slots, and tensor maps are made there. On a little-endian
machine a narrow value begins where its slot does; what follows it there is overwritten by the next.
If the thread's current context is another one, it gets it back after the launch: PyTorch takes its
current device from there.
"""

from __future__ import annotations

from tilewright.runtime.launcher_code import LauncherPart
from tilewright.runtime.launcher_code_tensor_map import FUNCTIONS, MAKE_MAPS
from tilewright.runtime.launcher_table import GpuHead

__all__ = ["GPU_PART"]

_FUNCTIONS = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
"""

_ENTRY = """
  %tensor = alloca [48 x i8], align 8
  %stream.found = alloca ptr
  %context.found = alloca ptr
  %config = alloca [56 x i8], align 8
  %packing = alloca [5 x i64], align 8
  %packing.bytes = alloca i64
"""

_ARRAY = """
array:
  %tensor.type = load ptr, @tilewright_table at $T_TENSOR
  %parameter.type = load ptr, @tilewright_table at $T_PARAMETER
  %is.tensor = icmp eq ptr %type, %tensor.type
  %is.parameter = icmp eq ptr %type, %parameter.type
  %is.known = or i1 %is.tensor, %is.parameter
  br i1 %is.known, label %known, label %decline
known:
  %is.usual = call i1 @is_usual(ptr %value)
  br i1 %is.usual, label %usual, label %decline
usual:
  %dtype.place = load i64, %record at 16
  %dtype.number = load i32, @tilewright_table at %dtype.place
  %handle.offset = load i64, @tilewright_table at $T_TENSOR_OFFSET
  %handle = getelementptr i8, ptr %value, i64 %handle.offset
  %get.dtype = load ptr, @tilewright_table at $T_GET_TENSOR_DTYPE
  %no.interface = icmp eq ptr %get.dtype, null
  br i1 %no.interface, label %view, label %ask
ask:
  %dtype.status = call i32 %get.dtype(ptr %handle, ptr %tensor)
  %dtype.answer = load i32, ptr %tensor
  %dtype.differs = xor i32 %dtype.answer, %dtype.number
  %get.index = load ptr, @tilewright_table at $T_GET_DEVICE_INDEX
  %index.status = call i32 %get.index(ptr %handle, ptr %tensor)
  %index.answer = load i32, ptr %tensor
  %place.number.here = getelementptr i8, ptr %program, i64 $H_PLACE
  %index.expected = load i32, %place.number.here at 4
  %index.differs = xor i32 %index.answer, %index.expected
  %differs = or i32 %dtype.differs, %index.differs
  %statuses = or i32 %dtype.status, %index.status
  %is.wrong = or i32 %differs, %statuses
  %is.right = icmp eq i32 %is.wrong, 0
  br i1 %is.right, label %ask.data, label %decline
ask.data:
  %get.data = load ptr, @tilewright_table at $T_GET_DATA
  %data.status = call i32 %get.data(ptr %handle, ptr %tensor)
  %handle.data = load i64, ptr %tensor
  %has.data = icmp eq i32 %data.status, 0
  br i1 %has.data, label %data, label %decline
view:
  %view.tensor = load ptr, @tilewright_table at $T_VIEW_TENSOR
  %view.status = call i32 %view.tensor(ptr %value, ptr %tensor)
  %is.viewed = icmp eq i32 %view.status, 0
  br i1 %is.viewed, label %place, label %forget
place:
  %place.expected = load i64, %program at $H_PLACE
  %place.actual = load i64, %tensor at 8
  %is.here = icmp eq i64 %place.actual, %place.expected
  %dtype.expected = load i32, %record at 8
  %dtype.actual = load i32, %tensor at 20
  %is.dtype = icmp eq i32 %dtype.actual, %dtype.expected
  %is.array = and i1 %is.here, %is.dtype
  br i1 %is.array, label %address, label %decline
address:
  %tensor.start = load i64, %tensor at 0
  %tensor.offset = load i64, %tensor at 40
  %tensor.data = add i64 %tensor.start, %tensor.offset
  br label %data
data:
  %array.data = phi i64 [ %tensor.data, %address ], [ %handle.data, %ask.data ]
  %is.null = icmp eq i64 %array.data, 0
  br i1 %is.null, label %null, label %whole.number
null:
  %is.nothing = call i1 @has_no_elements(ptr %value)
  br i1 %is.nothing, label %whole.number, label %decline
"""

_LAUNCH = """
launch:
  %is.empty0 = icmp eq i32 %size0, 0
  %is.empty1 = icmp eq i32 %size1, 0
  %is.empty2 = icmp eq i32 %size2, 0
  %is.empty01 = or i1 %is.empty0, %is.empty1
  %is.empty = or i1 %is.empty01, %is.empty2
  br i1 %is.empty, label %success, label %limits
limits:
  ; The driver takes 2^16 - 1 blocks along y and z.
  %sizes12 = or i32 %size1, %size2
  %is.grid = icmp ult i32 %sizes12, 65536
  br i1 %is.grid, label %stream, label %decline
stream:
  %place.here = load i64, %program at $H_PLACE
  %kind.of.device = trunc i64 %place.here to i32
  %number.shifted = lshr i64 %place.here, 32
  %number.of.device = trunc i64 %number.shifted to i32
  %current.stream = load ptr, @tilewright_table at $T_CURRENT_STREAM
  %stream.status = call i32 %current.stream(i32 %kind.of.device, i32 %number.of.device,
                                            ptr %stream.found)
  %is.stream = icmp eq i32 %stream.status, 0
  br i1 %is.stream, label %pack, label %forget
pack:
  %packed.bytes = load i64, %program at $H_PACKED_BYTES
  ; The last of them is stored as 8 bytes, too. Tensor maps are made at multiples of 64.
  %packed.room = add i64 %packed.bytes, 72
  %packed.memory = alloca i8, i64 %packed.room, align 64
  %maps.offset = load i64, %program at $H_MAPS_OFFSET
  %maps.offset.negated = sub i64 0, %maps.offset
  %packed.shift = and i64 %maps.offset.negated, 63
  %packed.parameters = getelementptr i8, ptr %packed.memory, i64 %packed.shift
  %taken = load ptr, %program at $H_PASSED
  %taken.count = load i64, %program at $H_PASSED_COUNT
  br label %take.next
take.next:
  %i = phi i64 [ 0, %pack ], [ %i.next, %take.slot ]
  %is.more = icmp ult i64 %i, %taken.count
  br i1 %is.more, label %take.slot, label %maps
take.slot:
  %taken.place = getelementptr i64, ptr %taken, i64 %i
  %slot.offset = load i32, %taken.place at 0
  %packed.offset = load i32, %taken.place at 4
  %taken.slot = getelementptr i8, ptr %block, i32 %slot.offset
  %taken.value = load i64, ptr %taken.slot
  %packed.place = getelementptr i8, ptr %packed.parameters, i32 %packed.offset
  store i64 %taken.value, ptr %packed.place, align 1
  %i.next = add i64 %i, 1
  br label %take.next
$MAKE_MAPS
note:
  ; A counter, then the numbers of the last kernels.
  %history.of.launches = load ptr, @tilewright_table at $T_HISTORY
  %launches = load i64, ptr %history.of.launches
  %launches.after = add i64 %launches, 1
  store i64 %launches.after, ptr %history.of.launches
  %history.slot = and i64 %launches, 15
  %history.index = add i64 %history.slot, 1
  %history.place = getelementptr i64, ptr %history.of.launches, i64 %history.index
  %kernel.number = load i64, %program at $H_NUMBER
  store i64 %kernel.number, ptr %history.place

  ; CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END; null where there are no parameters.
  %packing.words = getelementptr i64, ptr %packing, i64 1
  %packing.size.key = getelementptr i64, ptr %packing, i64 2
  %packing.size = getelementptr i64, ptr %packing, i64 3
  %packing.end = getelementptr i64, ptr %packing, i64 4
  store i64 1, ptr %packing
  store ptr %packed.parameters, ptr %packing.words
  store i64 2, ptr %packing.size.key
  store ptr %packing.bytes, ptr %packing.size
  store i64 0, ptr %packing.end
  store i64 %packed.bytes, ptr %packing.bytes
  %has.parameters = icmp ne i64 %packed.bytes, 0
  %parameters = select i1 %has.parameters, ptr %packing, ptr null

  %stream.here = load ptr, ptr %stream.found
  %threads.64 = load i64, %program at $H_THREADS
  %threads = trunc i64 %threads.64 to i32
  %shared.64 = load i64, %program at $H_SHARED_BYTES
  %shared = trunc i64 %shared.64 to i32
  %attribute.count.64 = load i64, %program at $H_ATTRIBUTE_COUNT
  %attribute.count = trunc i64 %attribute.count.64 to i32
  %is.plain = icmp eq i32 %attribute.count, 0
  %function = load ptr, %program at $H_FUNCTION
  %context = load ptr, %program at $H_CONTEXT
  %get.context = load ptr, @tilewright_table at $T_GET_CONTEXT
  %set.context = load ptr, @tilewright_table at $T_SET_CONTEXT
  ; A full queue makes the driver wait.
  %thread = call ptr @PyEval_SaveThread()
  %get.status = call i32 %get.context(ptr %context.found)
  %context.before = load ptr, ptr %context.found
  %is.current = icmp eq ptr %context.before, %context
  br i1 %is.current, label %start, label %elsewhere
elsewhere:
  %set.status = call i32 %set.context(ptr %context)
  %is.set = icmp eq i32 %set.status, 0
  br i1 %is.set, label %start, label %launched
start:
  br i1 %is.plain, label %plain, label %special
plain:
  %launch.kernel = load ptr, @tilewright_table at $T_LAUNCH
  %status.plain = call i32 %launch.kernel(ptr %function, i32 %size0, i32 %size1, i32 %size2,
      i32 %threads, i32 1, i32 1, i32 %shared, ptr %stream.here, ptr null, ptr %parameters)
  br label %started
special:
  %attributes = load ptr, %program at $H_ATTRIBUTES
  %config.y = getelementptr i8, ptr %config, i64 4
  %config.z = getelementptr i8, ptr %config, i64 8
  %config.threads = getelementptr i8, ptr %config, i64 12
  %config.threads.y = getelementptr i8, ptr %config, i64 16
  %config.threads.z = getelementptr i8, ptr %config, i64 20
  %config.shared = getelementptr i8, ptr %config, i64 24
  %config.stream = getelementptr i8, ptr %config, i64 32
  %config.attributes = getelementptr i8, ptr %config, i64 40
  %config.count = getelementptr i8, ptr %config, i64 48
  store i32 %size0, ptr %config
  store i32 %size1, ptr %config.y
  store i32 %size2, ptr %config.z
  store i32 %threads, ptr %config.threads
  store i32 1, ptr %config.threads.y
  store i32 1, ptr %config.threads.z
  store i32 %shared, ptr %config.shared
  store ptr %stream.here, ptr %config.stream
  store ptr %attributes, ptr %config.attributes
  store i32 %attribute.count, ptr %config.count
  %launch.special = load ptr, @tilewright_table at $T_LAUNCH_WITH_ATTRIBUTES
  %status.special = call i32 %launch.special(ptr %config, ptr %function, ptr null,
                                            ptr %parameters)
  br label %started
started:
  %status.started = phi i32 [ %status.plain, %plain ], [ %status.special, %special ]
  br i1 %is.current, label %launched, label %back
back:
  %back.status = call i32 %set.context(ptr %context.before)
  br label %launched
launched:
  %status = phi i32 [ %status.started, %started ], [ %status.started, %back ],
                   [ %set.status, %elsewhere ]
  call void @PyEval_RestoreThread(ptr %thread)
  %is.launched = icmp eq i32 %status, 0
  br i1 %is.launched, label %success, label %raise
"""

GPU_PART = LauncherPart(
    functions=_FUNCTIONS + FUNCTIONS,
    entry=_ENTRY,
    array=_ARRAY,
    whole="[ %array.data, %data ], [ 0, %null ]",
    launch=_LAUNCH.replace("$MAKE_MAPS", MAKE_MAPS),
    head=GpuHead,
)

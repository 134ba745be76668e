"""The part of a GPU's launcher that makes tensor maps, as LLVM IR; see `launcher_code_gpu.py`.

What is encoded are constants and products of the values of some arguments. Maps that were
made are kept, each at a place that its values choose, until others take it. The GIL is held.
"""

from __future__ import annotations

import string

from tilewright.codegen.nvidia.tensor_map import MAP_BYTES, MOST_FACTORS
from tilewright.runtime.launcher_table import MapField

__all__ = ["FUNCTIONS", "KEPT_MAPS", "MADE_OF_BYTES", "MAKE_MAPS"]

# How many maps of one kind are kept: each with what it was made of, a number and so many values.
KEPT_MAPS = 32
_KEY_WORDS = 16
_KEPT_BYTES = 8 * _KEY_WORDS + MAP_BYTES
# What maps of one kind are made of, and those that are kept.
MADE_OF_BYTES = MapField.KEPT + KEPT_MAPS * _KEPT_BYTES

_SIZES = {
    "MADE_OF_BYTES": MADE_OF_BYTES,
    "MAP_BYTES": MAP_BYTES,
    "MAP_WORDS": MAP_BYTES // 8,
    "KEY_WORDS": _KEY_WORDS,
    "KEPT_BYTES": _KEPT_BYTES,
    # Of a hash of 64 bits, to the number of a place.
    "KEPT_SHIFT": 65 - KEPT_MAPS.bit_length(),
    "MOST_FACTORS": MOST_FACTORS,
}

_FUNCTIONS = """
; Write the map of the arguments in `block` to `target`; the driver's answer.
define internal i32 @make_tensor_map(ptr %map, ptr %block, ptr %target, ptr %encode) noinline {
entry:
  ; How many values, then these: the address, the sizes, the strides.
  %key = alloca [$KEY_WORDS x i64], align 64
  %count = load i64, %map at $M_COUNT
  store i64 %count, ptr %key
  %values = getelementptr i64, ptr %key, i64 1
  %terms = getelementptr i8, ptr %map, i64 $M_TERMS
  br label %term
term:
  %i = phi i64 [ 0, %entry ], [ %i.next, %whole.term ]
  %hash = phi i64 [ 0, %entry ], [ %hash.next, %whole.term ]
  %term.offset = mul i64 %i, 32
  %term.place = getelementptr i8, ptr %terms, i64 %term.offset
  %shift = load i32, %term.place at 12
  %factor = load i64, %term.place at 16
  %scale = load i64, %term.place at 24
  br label %factors
factors:
  %f = phi i64 [ 0, %term ], [ %f.next, %times ]
  %product = phi i64 [ %factor, %term ], [ %multiplied, %times ]
  %slot.place = getelementptr i32, ptr %term.place, i64 %f
  %slot = load i32, ptr %slot.place
  %is.slot = icmp sge i32 %slot, 0
  br i1 %is.slot, label %times, label %whole.term
times:
  %argument.place = getelementptr i64, ptr %block, i32 %slot
  %argument = load i64, ptr %argument.place
  %multiplied = mul i64 %product, %argument
  %f.next = add i64 %f, 1
  %may.follow = icmp ult i64 %f.next, $MOST_FACTORS
  br i1 %may.follow, label %factors, label %whole.term
whole.term:
  %unwrapped = phi i64 [ %product, %factors ], [ %multiplied, %times ]
  %shift.64 = zext i32 %shift to i64
  %upper.part = shl i64 %unwrapped, %shift.64
  %wrapped = ashr i64 %upper.part, %shift.64
  %value = mul i64 %wrapped, %scale
  %value.place = getelementptr i64, ptr %values, i64 %i
  store i64 %value, ptr %value.place
  %mixed = xor i64 %hash, %value
  %spread = mul i64 %mixed, -7046029254386353131
  %upper = lshr i64 %spread, 32
  %hash.next = xor i64 %spread, %upper
  %i.next = add i64 %i, 1
  %is.more = icmp ult i64 %i.next, %count
  br i1 %is.more, label %term, label %find
find:
  %number = lshr i64 %hash.next, $KEPT_SHIFT
  %offset = mul i64 %number, $KEPT_BYTES
  %all.kept = getelementptr i8, ptr %map, i64 $M_KEPT
  %kept = getelementptr i8, ptr %all.kept, i64 %offset
  %kept.map = getelementptr i64, ptr %kept, i64 $KEY_WORDS
  br label %compare
compare:
  %j = phi i64 [ 0, %find ], [ %j.next, %same ]
  %own.place = getelementptr i64, ptr %key, i64 %j
  %own = load i64, ptr %own.place
  %other.place = getelementptr i64, ptr %kept, i64 %j
  %other = load i64, ptr %other.place
  %is.same = icmp eq i64 %own, %other
  br i1 %is.same, label %same, label %encode.anew
same:
  %j.next = add i64 %j, 1
  %is.whole = icmp ugt i64 %j.next, %count
  br i1 %is.whole, label %take, label %compare
take:
  %known = load <$MAP_WORDS x i64>, ptr %kept.map, align 64
  store <$MAP_WORDS x i64> %known, ptr %target, align 64
  ret i32 0

encode.anew:
  %element = load i32, %map at $M_ELEMENT
  %rank = load i32, %map at $M_RANK
  %swizzle = load i32, %map at $M_SWIZZLE
  %promotion = load i32, %map at $M_PROMOTION
  %fill = load i32, %map at $M_FILL
  %box = getelementptr i8, ptr %map, i64 $M_BOX
  %steps = getelementptr i8, ptr %map, i64 $M_STEPS
  %rank.64 = zext i32 %rank to i64
  %address = load ptr, ptr %values
  %sizes = getelementptr i64, ptr %values, i64 1
  %strides = getelementptr i64, ptr %sizes, i64 %rank.64
  %status = call i32 %encode(ptr %target, i32 %element, i32 %rank, ptr %address, ptr %sizes,
      ptr %strides, ptr %box, ptr %steps, i32 0, i32 %swizzle, i32 %promotion, i32 %fill)
  %is.encoded = icmp eq i32 %status, 0
  br i1 %is.encoded, label %keep, label %end
keep:
  %whole.key = load <$KEY_WORDS x i64>, ptr %key, align 64
  store <$KEY_WORDS x i64> %whole.key, ptr %kept, align 64
  %made = load <$MAP_WORDS x i64>, ptr %target, align 64
  store <$MAP_WORDS x i64> %made, ptr %kept.map, align 64
  br label %end
end:
  ret i32 %status
}
"""

# Goes on at `note`; an array that has no tensor map is left to Python, which says why.
_MAKE_MAPS = """
maps:
  %map.count = load i64, %program at $H_MAP_COUNT
  %all.maps = load ptr, %program at $H_MAPS
  %encode = load ptr, @tilewright_table at $T_ENCODE_TENSOR_MAP
  %packed.maps = getelementptr i8, ptr %packed.parameters, i64 %maps.offset
  %has.maps = icmp ne i64 %map.count, 0
  br i1 %has.maps, label %map, label %note
map:
  %m = phi i64 [ 0, %maps ], [ %m.next, %map.made ]
  %map.offset = mul i64 %m, $MADE_OF_BYTES
  %map.here = getelementptr i8, ptr %all.maps, i64 %map.offset
  %made.offset = mul i64 %m, $MAP_BYTES
  %made.map = getelementptr i8, ptr %packed.maps, i64 %made.offset
  %map.status = call i32 @make_tensor_map(ptr %map.here, ptr %block, ptr %made.map, ptr %encode)
  %is.made = icmp eq i32 %map.status, 0
  br i1 %is.made, label %map.made, label %decline
map.made:
  %m.next = add i64 %m, 1
  %is.another = icmp ult i64 %m.next, %map.count
  br i1 %is.another, label %map, label %note
"""

FUNCTIONS = string.Template(_FUNCTIONS).safe_substitute(_SIZES)
MAKE_MAPS = string.Template(_MAKE_MAPS).safe_substitute(_SIZES)

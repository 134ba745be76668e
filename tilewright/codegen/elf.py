"""A small linker: places one relocatable ELF object for x86-64 in memory.

LLVM's own linkers keep some 40 KB for each object, of which a kernel needs one page. This one knows
what LLVM emits for position-independent code of the small model, and refuses whatever else there
is. The sections lie in one mapping: code and constants first, which end up executable and
read-only, then the variables. Functions of the process are called through stubs, since they may be
farther away than a displacement of 32 bits reaches.

The format: the System V ABI and its x86-64 supplement.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator

from tilewright.codegen.code_memory import place

__all__ = ["Image", "Refused", "link"]

_SECTION_FORMAT = struct.Struct("<IIQQQQIIQQ")
_SYMBOL_FORMAT = struct.Struct("<IBBHQQ")
_RELOCATION_FORMAT = struct.Struct("<QIIq")

# An object for a 64-bit, little-endian x86-64.
_MAGIC = b"\x7fELF\x02\x01"
_RELOCATABLE, _X86_64 = 1, 62

_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL = 1, 2, 4, 8, 9
# Tables for stack unwinding, which nothing reads: no exception passes through a kernel.
_UNWIND = 0x70000001
_WRITE, _ALLOC, _THREAD_LOCAL = 0x1, 0x2, 0x400
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_WEAK = 2

# A stub is `jmp *slot(%rip)`, filled up with traps.
_STUB_SIZE, _JUMP = 8, b"\xff\x25"


class Refused(Exception):
    """The object is damaged, or holds something that this linker does not know."""


class _Kind:
    """Relocations, R_X86_64_...: how a place depends on the address of a symbol."""

    ABSOLUTE_64 = 1
    PC32 = 2
    PLT32 = 4
    GOTPCREL = 9
    PC64 = 24
    GOTPCRELX = 41
    REX_GOTPCRELX = 42


_WITH_SLOT = {_Kind.GOTPCREL, _Kind.GOTPCRELX, _Kind.REX_GOTPCRELX}


# Plain classes: to make a named tuple takes longer than to link a kernel.


class _Section:
    """A section, from the fields of its header."""

    def __init__(self, header: tuple[int, ...]) -> None:
        _, self.kind, self.flags, _, self.offset, self.size, *others = header
        self.link, self.info, self.alignment, _ = others


class _Symbol:
    """A name, and its value in a section."""

    def __init__(self, name: str, section: int, value: int, *, is_weak: bool) -> None:
        self.name = name
        self.section = section
        self.value = value
        self.is_weak = is_weak


class _Relocation:
    """A place in a section that depends on a symbol."""

    def __init__(self, section: int, offset: int, kind: int, symbol: int, addend: int) -> None:
        self.section = section
        self.offset = offset
        self.kind = kind
        self.symbol = symbol
        self.addend = addend


class Image:
    """An object in memory, unmapped when this Python object goes; `addresses` are by symbol."""

    def __init__(self, addresses: dict[str, int], memory: mmap.mmap) -> None:
        self.addresses = addresses
        self.memory = memory


def link(object_bytes: bytes, find: Callable[[str], int | None]) -> Image:
    """Place an object in memory; `find` returns the address of a name that it does not define.

    Raises `Refused` for what this linker does not know, and `LookupError` with the name for what
    `find` does not.
    """
    try:
        return _Linker(object_bytes, find).run()
    except (struct.error, IndexError, ValueError, OSError) as error:
        raise Refused(f"not a whole object, or no memory for it: {error}") from error


class _Linker:
    """The state of one call of `link`."""

    def __init__(self, data: bytes, find: Callable[[str], int | None]) -> None:
        self.data = data
        self.find = find
        self.sections = self._read_sections()
        self.symbols = self._read_symbols()
        self.relocations = list(self._read_relocations())
        # Where each section that is loaded starts in the memory, and the end of what is not zero.
        self.places: dict[int, int] = {}
        self.end = 0
        # The slots of the global offset table and the stubs, by symbol.
        self.slots: dict[int, int] = {}
        self.stubs: dict[int, int] = {}

    def run(self) -> Image:
        end = self._place(writable=False, start=0)
        for relocation in self.relocations:
            end = self._place_helpers(relocation, end)
        data_start = _round_up(end, mmap.PAGESIZE)
        data_size = self._place(writable=True, start=data_start) - data_start
        alignment = max((self.sections[number].alignment for number in self.places), default=1)
        base, memory = place(end, data_size, alignment, self._contents_at)
        addresses = {
            symbol.name: base + self.places[symbol.section] + symbol.value
            for symbol in self.symbols
            if symbol.name and symbol.section in self.places
        }
        return Image(addresses, memory)

    def _contents_at(self, base: int) -> bytes:
        """Return the contents of the memory, to be placed at an address."""
        memory = bytearray(self.end)
        for number, offset in self.places.items():
            section = self.sections[number]
            if section.kind == _PROGBITS:
                memory[offset : offset + section.size] = self._contents(section)
        for symbol, slot in self.slots.items():
            struct.pack_into("<Q", memory, slot, self._address(symbol, base))
        for symbol, stub in self.stubs.items():
            jump = _JUMP + struct.pack("<i", self.slots[symbol] - stub - 6)
            memory[stub : stub + _STUB_SIZE] = jump.ljust(_STUB_SIZE, b"\xcc")
        for relocation in self.relocations:
            self._apply(relocation, memory, base)
        return bytes(memory)

    # ---- reading

    def _read_sections(self) -> list[_Section]:
        data = self.data
        kind, machine = struct.unpack_from("<HH", data, 16)
        if data[:6] != _MAGIC or (kind, machine) != (_RELOCATABLE, _X86_64):
            raise Refused("no relocatable object for x86-64")
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        if size != _SECTION_FORMAT.size or count == 0:
            raise Refused("section headers of another size, or too many")
        return [
            _Section(_SECTION_FORMAT.unpack_from(data, start + size * number))
            for number in range(count)
        ]

    def _contents(self, section: _Section) -> bytes:
        contents = self.data[section.offset : section.offset + section.size]
        if len(contents) != section.size:
            raise Refused("a section beyond the end of the object")
        return contents

    def _read_symbols(self) -> list[_Symbol]:
        tables = [section for section in self.sections if section.kind == _SYMTAB]
        if len(tables) != 1:
            raise Refused(f"{len(tables)} symbol tables")
        names = self._contents(self.sections[tables[0].link])
        return [
            _Symbol(
                names[name : names.index(b"\0", name)].decode(),
                section,
                value,
                is_weak=info >> 4 == _WEAK,
            )
            for name, info, _, section, value, _ in _SYMBOL_FORMAT.iter_unpack(
                self._contents(tables[0])
            )
        ]

    def _read_relocations(self) -> Iterator[_Relocation]:
        for table in self.sections:
            if table.kind not in {_RELA, _REL} or not self._is_loaded(self.sections[table.info]):
                continue
            if table.kind == _REL:
                raise Refused("relocations without addends")
            for offset, kind, symbol, addend in _RELOCATION_FORMAT.iter_unpack(
                self._contents(table)
            ):
                yield _Relocation(table.info, offset, kind, symbol, addend)

    # ---- placing

    def _is_loaded(self, section: _Section) -> bool:
        if not section.flags & _ALLOC or section.kind == _UNWIND:
            return False
        if section.flags & _THREAD_LOCAL or section.kind not in {_PROGBITS, _NOBITS}:
            raise Refused(f"a section of type {section.kind} with flags {section.flags:#x}")
        return True

    def _place(self, *, writable: bool, start: int) -> int:
        """Give every section of a kind its place; return where they end."""
        end = start
        for number, section in enumerate(self.sections):
            if not self._is_loaded(section) or bool(section.flags & _WRITE) is not writable:
                continue
            if section.alignment > mmap.PAGESIZE:
                raise Refused(f"an alignment of {section.alignment} bytes")
            self.places[number] = _round_up(end, max(section.alignment, 1))
            end = self.places[number] + section.size
            if section.kind == _PROGBITS:
                self.end = end
        return end

    def _place_helpers(self, relocation: _Relocation, end: int) -> int:
        """Give a symbol the slot and the stub that a relocation to it needs."""
        number = relocation.symbol
        is_foreign = self.symbols[number].section == _UNDEFINED
        needs_stub = relocation.kind == _Kind.PLT32 and is_foreign
        needs_slot = relocation.kind in _WITH_SLOT
        if (needs_stub or needs_slot) and number not in self.slots:
            self.slots[number] = _round_up(end, 8)
            end = self.end = self.slots[number] + 8
        if needs_stub and number not in self.stubs:
            self.stubs[number] = _round_up(end, 8)
            end = self.end = self.stubs[number] + _STUB_SIZE
        return end

    # ---- linking

    def _address(self, number: int, base: int) -> int:
        symbol = self.symbols[number]
        if symbol.section == _UNDEFINED:
            address = self.find(symbol.name)
            if address is None and not symbol.is_weak:
                raise LookupError(symbol.name)
            return address or 0
        if symbol.section == _ABSOLUTE:
            return symbol.value
        if symbol.section not in self.places:
            raise Refused(f"`{symbol.name}` lies in section {symbol.section}, which is not loaded")
        return base + self.places[symbol.section] + symbol.value

    def _apply(self, relocation: _Relocation, memory: bytearray, base: int) -> None:
        section, offset, kind = relocation.section, relocation.offset, relocation.kind
        number, addend = relocation.symbol, relocation.addend
        width = 8 if kind in {_Kind.ABSOLUTE_64, _Kind.PC64} else 4
        if offset + width > self.sections[section].size:
            raise Refused("a relocation beyond the end of its section")
        at = self.places[section] + offset
        match kind:
            case _Kind.ABSOLUTE_64:
                value = (self._address(number, base) + addend) % 2**64
                struct.pack_into("<Q", memory, at, value)
                return
            case _Kind.GOTPCREL | _Kind.GOTPCRELX | _Kind.REX_GOTPCRELX:
                target = base + self.slots[number]
            case _Kind.PLT32 if number in self.stubs:
                target = base + self.stubs[number]
            case _Kind.PC32 | _Kind.PLT32 | _Kind.PC64:
                target = self._address(number, base)
            case _:
                raise Refused(f"a relocation of type {kind}")
        distance = target + addend - (base + at)
        if width == 8:
            struct.pack_into("<q", memory, at, distance)
        elif -(2**31) <= distance < 2**31:
            struct.pack_into("<i", memory, at, distance)
        else:
            raise Refused(f"`{self.symbols[number].name}` is out of reach")


def _round_up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment

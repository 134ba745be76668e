"""Elements of any type as words of 8 to 64 bits, the units that instructions move, and back."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.code import Code, llvm_type
from tilewright.ir.types import ElementType, PointerType

__all__ = [
    "WORD_BITS", "from_words", "load_words", "moved_type", "store_words", "to_vector",
    "to_words", "word_size",
]  # fmt: skip

WORD_BITS = 32  # of the registers of GPUs


def moved_type(element: ElementType) -> str:
    """Return the LLVM type of an element that is moved: a pointer is a number, a bool a byte."""
    if isinstance(element, PointerType):
        return "i64"
    kind = llvm_type(element)
    return "i8" if kind == "i1" else kind


def word_size(total_bits: int) -> int:
    """Return the words in which so many bits are moved at once: one, or several of 32 bits."""
    return min(total_bits, WORD_BITS)


def to_words(
    code: Code, texts: Sequence[str], element: ElementType, word_bits: int, level: int | None = None
) -> list[str]:
    """Return elements as words, packed from the lowest bits on."""
    kind, bits = moved_type(element), element.storage_bits
    plain = [_to_moved(code, text, element, level) for text in texts]
    count = max(1, len(texts) * bits // word_bits)
    used = min(word_bits, len(texts) * bits)
    whole = plain[0]
    if len(plain) > 1:
        whole = to_vector(code, plain, kind, level)
        kind = f"<{len(plain)} x {kind}>"
    words = f"i{used}" if count == 1 else f"<{count} x i{used}>"
    if words != kind:
        whole = code.assign(f"bitcast {kind} {whole} to {words}", level)
    if count > 1:
        return [
            code.assign(f"extractelement {words} {whole}, i32 {i}", level) for i in range(count)
        ]
    if used < word_bits:
        return [code.assign(f"zext i{used} {whole} to i{word_bits}", level)]
    return [whole]


def from_words(
    code: Code,
    words: Sequence[str],
    element: ElementType,
    word_bits: int,
    count: int,
    level: int | None = None,
) -> list[str]:
    """Return `count` elements that `to_words` has made into words."""
    kind, bits = moved_type(element), element.storage_bits
    used = min(word_bits, count * bits)
    whole, source = words[0], f"i{word_bits}"
    if kind == "i16" and used == WORD_BITS:
        return [half for word in words for half in _halves(code, word, level)]
    if len(words) > 1:
        whole = to_vector(code, words, source, level)
        source = f"<{len(words)} x {source}>"
    elif used < word_bits:
        whole, source = code.assign(f"trunc {source} {whole} to i{used}", level), f"i{used}"
    target = kind if count == 1 else f"<{count} x {kind}>"
    if target != source:
        whole = code.assign(f"bitcast {source} {whole} to {target}", level)
    parts = [whole]
    if count > 1:
        parts = [
            code.assign(f"extractelement {target} {whole}, i32 {i}", level) for i in range(count)
        ]
    return [_from_moved(code, part, element, level) for part in parts]


def _halves(code: Code, word: str, level: int | None) -> list[str]:
    """By a shift, so that LLVM sees that a bf16 widened to fp32 is a part of the word."""
    upper = code.assign(f"lshr i32 {word}, 16", level)
    return [code.assign(f"trunc i32 {half} to i16", level) for half in (word, upper)]


def to_vector(code: Code, texts: Sequence[str], kind: str, level: int | None = None) -> str:
    """Return scalars as one LLVM vector."""
    whole = "poison"
    for i, text in enumerate(texts):
        whole = code.assign(
            f"insertelement <{len(texts)} x {kind}> {whole}, {kind} {text}, i32 {i}", level
        )
    return whole


def _to_moved(code: Code, text: str, element: ElementType, level: int | None) -> str:
    if isinstance(element, PointerType):
        return code.assign(f"ptrtoint ptr {text} to i64", level)
    return code.assign(f"zext i1 {text} to i8", level) if element.is_bool() else text


def _from_moved(code: Code, text: str, element: ElementType, level: int | None) -> str:
    if isinstance(element, PointerType):
        return code.assign(f"inttoptr i64 {text} to ptr", level)
    return code.assign(f"icmp ne i8 {text}, 0", level) if element.is_bool() else text


def store_words(
    code: Code, address: str, word_bits: int, words: Sequence[str], pointer: str
) -> None:
    """Store consecutive words by one instruction; `pointer` is the type of the address."""
    kind, text = f"i{word_bits}", words[0]
    if len(words) > 1:
        text = to_vector(code, words, kind)
        kind = f"<{len(words)} x {kind}>"
    code.line(f"store {kind} {text}, {pointer} {address}, align {word_bits * len(words) // 8}")


def load_words(
    code: Code, address: str, element: ElementType, count: int, pointer: str, flags: str = ""
) -> list[str]:
    """Load consecutive elements by one instruction; `pointer` is the type of the address."""
    total = count * element.storage_bits
    word = word_size(total)
    kind = f"i{word}" if total == word else f"<{total // word} x i{word}>"
    whole = code.assign(f"load {flags}{kind}, {pointer} {address}, align {total // 8}")
    words = [whole]
    if total > word:
        words = [
            code.assign(f"extractelement {kind} {whole}, i32 {i}") for i in range(total // word)
        ]
    return from_words(code, words, element, word, count)

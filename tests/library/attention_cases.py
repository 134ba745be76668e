"""Attention by its definition, for tests of the fast ones."""

import torch

from tests.library.checking import tensor

__all__ = ["only", "operands", "positions", "written_out"]


def operands(batch, heads, key_heads, queries, keys, width, dtype="float32", device="cpu"):
    return (
        tensor((batch, heads, queries, width), dtype, device),
        tensor((batch, key_heads, keys, width), dtype, device),
        tensor((batch, key_heads, keys, width), dtype, device),
    )


def written_out(logits_of):
    """Attention by its definition; a query that sees no key has the result 0."""

    def reference(query, key, value, *others):
        shared = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(shared, 1) for x in (key, value))
        logits = logits_of(query @ key.mT / query.shape[-1] ** 0.5, *others)
        return torch.softmax(logits, -1).nan_to_num(0.0) @ value

    return reference


def positions(logits, offset=0):
    queries, keys = logits.shape[-2:]
    query = torch.arange(queries, device=logits.device)[:, None] + offset
    return query, torch.arange(keys, device=logits.device)


def only(logits, seen):
    return logits.masked_fill(~seen, -torch.inf)

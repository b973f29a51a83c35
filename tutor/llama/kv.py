"""Operations on the KV cache, by slot and range of positions.

`p0` is the first position, `p1` the one after the last; -1 stands for "from the start" and "to the end". Each
function refuses, with EngineMisuse, what llama.cpp would answer by ending the process.
"""

from __future__ import annotations

import ctypes

from tutor.llama import library
from tutor.llama.context import Context
from tutor.llama.errors import EngineMisuse, NoSpace

SHIFTABLE = ("f16", "f32")


def pos_max(context: Context, slot: int) -> int:
    """The last position that a slot holds, -1 when it is empty."""
    return context.pos_max(slot)


def pos_min(context: Context, slot: int) -> int:
    """The first position that a slot holds, -1 when it is empty."""
    context.check_slot(slot)
    return int(context.lib.llama_memory_seq_pos_min(context.memory, slot))


def clear(context: Context) -> None:
    """Empty all slots."""
    context.pointer  # noqa: B018 - raises when closed
    context.lib.llama_memory_clear(context.memory, True)


def seq_rm(context: Context, slot: int, p0: int = -1, p1: int = -1) -> None:
    """Take a slot's hold off its cells in [p0, p1); cells without an owner are free again."""
    context.check_slot(slot)
    if not context.lib.llama_memory_seq_rm(context.memory, slot, p0, p1):
        raise EngineMisuse(f"This cache cannot drop part of slot {slot}.", "Remove all of the slot.")


def seq_cp(context: Context, source: int, target: int, p0: int = -1, p1: int = -1) -> None:
    """Let `target` hold the cells of `source` in [p0, p1) too.

    In a shared context no data moves. In an exact context llama.cpp copies a whole slot, at the next decode,
    and replaces what `target` held; a part of a slot would end the process and raises EngineMisuse.
    """
    last = context.pos_max(source)
    held = context.pos_max(target)
    if source == target:
        return
    first, end = max(p0, 0), last + 1 if p1 < 0 else min(p1, last + 1)
    if first >= end:
        raise EngineMisuse(
            f"Slot {source} holds no position from {first} to {end - 1}.", "Copy what the slot holds."
        )
    if not context.unified:
        if first > max(0, pos_min(context, source)) or end <= last:
            raise EngineMisuse(
                "An exact context can copy whole slots only.", "Copy all of it, or use mode shared."
            )
        context.lib.llama_memory_seq_cp(context.memory, source, target, -1, -1)
        context.copying.update((source, target))
        return
    if held >= first:
        raise EngineMisuse(
            f"Slot {target} already holds positions up to {held}.", "Remove them before you copy over them."
        )
    context.lib.llama_memory_seq_cp(context.memory, source, target, first, end)


def seq_add(context: Context, slot: int, p0: int, p1: int, delta: int) -> None:
    """Move the positions of a slot in [p0, p1) by `delta`; K is rotated to match at the next decode.

    Raises EngineMisuse for a cache type that llama.cpp cannot rotate (bf16: it would end the process).
    """
    context.check_slot(slot)
    if context.config.type_k not in SHIFTABLE or not context.lib.llama_memory_can_shift(context.memory):
        raise EngineMisuse(
            f"Positions cannot be moved in a {context.config.type_k} cache.", "Use type_k f16 or f32."
        )
    if max(p0, 0) + delta < 0:
        raise EngineMisuse("A position cannot be negative.", "Move by less.")
    context.lib.llama_memory_seq_add(context.memory, slot, p0, p1, delta)


def save(context: Context, slot: int) -> bytes:
    """K and V of a slot as bytes: `kv_elements_per_token` elements and 12 bytes a token, and a header."""
    _settled(context, slot)
    size = int(context.lib.llama_state_seq_get_size(context.pointer, slot))
    buffer = (ctypes.c_uint8 * size)()
    written = int(context.lib.llama_state_seq_get_data(context.pointer, buffer, size, slot))
    return bytes(memoryview(buffer)[:written])


def restore(context: Context, slot: int, blob: bytes) -> None:
    """Put saved K and V into a slot, in place of what it held.

    The context may be another one, if its types of K and V, its use of flash attention and its number of
    separate parts match (1 in shared mode, n_seq_max in exact mode). Raises NoSpace or EngineMisuse; the slot
    is then empty.
    """
    _settled(context, slot)
    buffer = (ctypes.c_uint8 * max(1, len(blob))).from_buffer_copy(blob or b"\0")
    with library.captured_log() as lines:
        read = int(context.lib.llama_state_seq_set_data(context.pointer, buffer, len(blob), slot))
    if read != 0 and read == len(blob):
        return
    seq_rm(context, slot)
    if any("available cells" in line for line in lines):
        raise NoSpace(f"There are no free KV cells to restore slot {slot}.", "Free a slot, then try again.")
    raise EngineMisuse(
        f"The saved state does not fit slot {slot}: {library.complaints(lines)[0]}.",
        "Restore it into a context with the same model, mode, cache types and flash attention.",
    )


def _settled(context: Context, slot: int) -> None:
    """llama.cpp puts the copy of a whole slot off until the next decode; until then its data are old."""
    context.check_slot(slot)
    if slot in context.copying:
        raise EngineMisuse(f"The copy of slot {slot} is made at the next decode.", "Decode first.")

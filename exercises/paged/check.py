"""Checks of `paged`: block tables over a pool in random order, filled with real keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tutor.grading.kit import (
    Context,
    Handle,
    MoveRecorder,
    Record,
    Refused,
    check,
    shorter,
    smaller_numbers,
    table_rows,
)

Array = np.ndarray[Any, Any]

LAYER = 10
Q_HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
# llama.cpp rounds q, k, v and the weights to f16 inside attention: up to 0.005 was measured in this layer
TOLERANCE = 0.01
POOL_BLOCKS = 32
LEFTOVER = np.float32(50.0)  # what slots hold that no token of the request was written to

TEXTS = (
    "The harbour has forty berths. A ship takes the first one that is free, and the harbour master writes "
    "the number into his book, since no ship stays long in one place.",
    "A theatre sells seats, not rows. Four friends may sit in four corners of the hall and still see the "
    "same play from the first act to the last.",
    "Post offices once kept a wall of small boxes. A family that received more letters rented a second box, "
    "and nobody minded that it was far from the first.",
    "On the farm each field rests every third year. The farmer keeps a list of what grew where, because the "
    "fields themselves do not remember it.",
)


class Pool:
    """Free blocks in random order. `take` is what the learner's code calls; `taken` is what it got."""

    def __init__(self, ctx: Context, num_blocks: int, free: list[int] | None = None, first: int = 0) -> None:
        order = list(free or ctx.rng.permutation(num_blocks) + first)
        while (
            not free and num_blocks > 1 and (np.diff(order[:4]) > 0).all()
        ):  # in rising order a wrong walk would go unseen
            order = list(ctx.rng.permutation(num_blocks) + first)
        self.free = [int(block) for block in order]
        self.taken: list[int] = []

    def take(self) -> int:
        if not self.free:
            raise Refused("No block is free: you took more blocks than the tokens need.")
        self.taken.append(self.free.pop(0))
        return self.taken[-1]


def blocks_for(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


def growth(ctx: Context, block_size: int) -> list[int]:
    """How many tokens each append adds: a prompt, single tokens, nothing, an exact fill, several blocks."""
    prompt = int(ctx.rng.integers(1, 2 * block_size)) | 1  # odd: never a multiple of the block size
    steps = [prompt, 0, 1, -(prompt + 1) % block_size or block_size, 0, 1]
    steps += [block_size - 1, block_size, 3 * block_size + 1, 1]
    return steps + [int(ctx.rng.integers(0, 2 * block_size)) for _ in range(4)]


@check(
    "blocks of a growing request",
    "new blocks, the table and the waste after each of 14 appends, for block sizes 4, 8 and 16: exact",
)
def growing(ctx: Context) -> None:
    for block_size in (16, 4, 8):
        free = Pool(ctx, 64).free
        case = Growth(block_size, growth(ctx, block_size))
        ctx.shrink(case, lambda case, free=free: grow(ctx, case, Pool(ctx, 64, free)), simpler_growth)


class Growth(NamedTuple):
    """A request that grows: the block size, and how many tokens each append adds."""

    block_size: int
    appends: list[int]

    @property
    def note(self) -> str:
        calls = ", ".join(f"append({n})" for n in self.appends)
        return f"Try it: BlockTable({self.block_size}, take), then {calls}."


def simpler_growth(case: Growth) -> Iterator[Growth]:
    for appends in shorter(case.appends, least=1):
        yield case._replace(appends=appends)
    for size in (2, 4):
        if size < case.block_size:
            yield case._replace(block_size=size)
    for appends in smaller_numbers(case.appends):
        yield case._replace(appends=appends)


def grow(ctx: Context, case: Growth, pool: Pool) -> None:
    """Append in pieces; after each one compare blocks, table and waste with what the tokens need."""
    block_size, tokens = case.block_size, 0
    moves = ctx.recorder(block_size, 64)
    moves.request("A")
    table = ctx.guest.new("BlockTable", block_size, ctx.callback(pool.take, "take"))
    for done, n in enumerate(case.appends, start=1):
        so_far = case._replace(appends=case.appends[:done])
        before = len(pool.taken)
        moves.move(f"append({n})")
        new = table.call("append", n)
        tokens += n
        needed = blocks_for(tokens, block_size)
        moves.took("A", pool.taken[before:], tokens)
        moves.compare(
            f"A request of {tokens} tokens holds exactly {needed} blocks of {block_size}: it takes one when "
            "the last one is full, and none before.",
            [("blocks held", needed, len(pool.taken)), ("append returned", pool.taken[before:], new)],
        )
        expect_blocks(ctx, pool, before, new, so_far, tokens)
        blocks = table.get("blocks")
        listed = "The table lists the blocks in the order of the tokens."
        moves.compare(listed, table_rows("blocks", pool.taken, blocks))
        note = f"List them in the order taken. {so_far.note}"
        ctx.expect_equal(blocks, pool.taken, where="blocks", note=note)
        expect_waste(ctx, moves, table, so_far, tokens)


def expect_blocks(ctx: Context, pool: Pool, before: int, new: Any, case: Growth, tokens: int) -> None:
    """Just as many blocks as the tokens need, and append returns those that it took."""
    block_size, n = case.block_size, case.appends[-1]
    held, needed = len(pool.taken), blocks_for(tokens, block_size)
    room = before * block_size - (tokens - n)
    at = f"after append({n}): {tokens} tokens, block size {block_size}"
    ctx.misconception(
        "rounded down",
        held < needed,
        f"Token {tokens - 1} has no block: {tokens} tokens need {needed} blocks of {block_size}. Round up.",
    )
    ctx.misconception(
        "taken early",
        held == needed + 1 and tokens % block_size == 0,
        f"You took a block before it is needed: {tokens} tokens fill {needed} blocks exactly.",
    )
    ctx.misconception(
        "last block not filled",
        held > needed,
        f"The last block still had room for {room} tokens: fill it before you take another.",
    )
    ctx.expect(
        held == needed,
        f"{held} blocks were taken, expected {needed} ({at}). {case.note}",
        expected=needed,
        actual=held,
        where=at,
    )
    ctx.expect_equal(
        new, pool.taken[before:], where="append", note=f"Return the ids that take() gave now. {case.note}"
    )


def expect_waste(ctx: Context, moves: MoveRecorder, table: Handle, case: Growth, tokens: int) -> None:
    block_size = case.block_size
    waste = table.call("waste")
    expected = blocks_for(tokens, block_size) * block_size - tokens
    moves.compare("waste() counts the empty slots of the blocks held.", [("waste()", expected, waste)])
    ctx.misconception(
        "used slots counted",
        waste != expected and waste == tokens % block_size,
        "tokens % block_size counts the slots in use in the last block. The empty ones are asked.",
    )
    ctx.misconception(
        "waste of a full block",
        waste == block_size and expected == 0,
        "An exact multiple of the block size wastes nothing.",
    )
    note = f"{tokens} tokens, block size {block_size}. {case.note}"
    ctx.expect_equal(waste, expected, where="waste()", note=note)


@check("slots of all tokens", "(block id, offset) of every token of a request that grew in pieces: exact")
def slots(ctx: Context) -> None:
    block_size = int(ctx.rng.choice([4, 8, 16]))
    pool = Pool(ctx, 32, first=200)
    table = ctx.guest.new("BlockTable", block_size, ctx.callback(pool.take, "take"))
    pieces = (block_size - 1, 2, 2 * block_size, int(ctx.rng.integers(1, block_size)))
    for n in pieces:
        table.call("append", n)
    for pos in range(sum(pieces)):
        entry, offset = divmod(pos, block_size)
        got = items(table.call("slot", pos))
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            ctx.fail(f"slot({pos}) returns {got!r}; return a pair (block id, offset).", actual=got)
        expect_slot(ctx, pos, tuple(got), (pool.taken[entry], offset), entry, block_size)


def items(answer: Any) -> Any:
    """A NamedTuple or an array where a pair is expected, as a sequence; anything else as it is."""
    if isinstance(answer, Record):
        return tuple(answer.as_dict().values())
    return answer.tolist() if isinstance(answer, np.ndarray) else answer


def expect_slot(
    ctx: Context, pos: int, got: tuple[Any, ...], right: tuple[int, int], entry: int, block_size: int
) -> None:
    if got == right:
        return
    ctx.misconception(
        "offset is the position",
        got == (right[0], pos),
        f"The offset counts inside the block: offset = pos % {block_size}.",
    )
    ctx.misconception(
        "logical block",
        got[0] == entry,
        f"{entry} is the entry of the table: look it up in the table to get the physical block.",
    )
    ctx.misconception("swapped", got == right[::-1], "The order is (block id, offset).")
    ctx.expect_equal(got, right, where=f"slot({pos})", note=f"Block size {block_size}.")


class Captured:
    """Queries, keys, values and attention output of one layer for a real text; one row a token."""

    def __init__(self, ctx: Context) -> None:
        chosen = ctx.seed % len(TEXTS)  # the same text in all checks: one forward pass
        names = [f"{part}-{LAYER}" for part in ("Qcur", "Kcur", "Vcur", "kqv_out")]

        def make() -> list[Array]:
            ids = ctx.model.tokenize(TEXTS[chosen])
            seen = ctx.model.capture(ids, names)
            rows = [seen[name][-1].reshape(len(ids), -1, HEAD_DIM) for name in names[:3]]
            return [*rows, seen[names[3]][-1].reshape(len(ids), -1)]

        self.q, self.k, self.v, self.out = ctx.cached(f"text {chosen}", make)


def scattered(rows: Array, blocks: list[int], num_blocks: int, block_size: int) -> Array:
    """A pool with `rows` in the slots that the table says; all others hold something else's leftovers."""
    pool = np.full((num_blocks, block_size, *rows.shape[1:]), LEFTOVER)
    for pos, row in enumerate(rows):
        pool[blocks[pos // block_size], pos % block_size] = row
    return pool


def random_table(ctx: Context, tokens: int, block_size: int, num_blocks: int) -> list[int]:
    pool = Pool(ctx, num_blocks)
    return [pool.take() for _ in range(blocks_for(tokens, block_size))]


@check(
    "gather in the order of the table",
    f"rows equal the real keys of layer {LAYER} bit for bit, out of a pool in random order; also n = 0",
)
def gather_rows(ctx: Context) -> None:
    keys = Captured(ctx).k
    block_size = int(ctx.rng.choice([2, 4, 8]))
    whole = len(keys) // block_size * block_size
    blocks = random_table(ctx, len(keys), block_size, 48)
    pool = scattered(keys, blocks, 48, block_size)
    in_guest = ctx.guest.put(pool)
    for n in (whole - 1, whole, whole // 2 + 1, 1):
        expect_rows(ctx, in_guest, pool, blocks[: blocks_for(n, block_size)], keys[:n])
    expect_rows(ctx, in_guest, pool, blocks, keys)
    expect_rows(ctx, in_guest, pool, [], keys[:0])


def expect_rows(ctx: Context, in_guest: Handle, pool: Array, blocks: list[int], right: Array) -> None:
    """gather returns exactly `right`; what other walks over the pool would give is named."""
    n = len(right)
    got = ctx.guest.call("gather", in_guest, blocks, n)

    def is_rows(of: Array) -> bool:
        rows = of.reshape(-1, *of.shape[2:])
        return isinstance(got, np.ndarray) and np.array_equal(got, rows[: len(got)])

    right_shape = isinstance(got, np.ndarray) and got.shape == right.shape
    ctx.misconception(
        "physical order",
        right_shape and not np.array_equal(got, right) and is_rows(pool[sorted(blocks)]),
        "Rows came back in pool order; the causal mask needs logical order, that of the table.",
    )
    ctx.misconception(
        "table ignored",
        right_shape and not np.array_equal(got, right) and is_rows(pool),
        "These are the rows at the front of the pool. The table says in which blocks the request's rows are.",
    )
    ctx.misconception(
        "empty tail returned",
        lambda: len(got) > n and len(got) % pool.shape[1] == 0,
        f"You returned the empty slots of the last block too: only the first {n} rows hold tokens.",
    )
    note = f"Called with n = {n}, block size {pool.shape[1]} and the table {blocks}."
    ctx.expect_close(got, right, where="gather", note=note)


@check(
    "attention through the table",
    f"attention over gathered keys and values equals the model's own kqv_out of layer {LAYER}, ± {TOLERANCE}",
)
def paged_attention(ctx: Context) -> None:
    seen = Captured(ctx)
    tokens, block_size = len(seen.k), 16
    blocks = random_table(ctx, tokens, block_size, 12)
    keys, values = (
        ctx.guest.call("gather", scattered(rows, blocks, 12, block_size), blocks, tokens)
        for rows in (seen.k, seen.v)
    )
    for name, rows in (("keys", keys), ("values", values)):
        shape = getattr(rows, "shape", None)
        ctx.expect(shape == seen.k.shape, f"The gathered {name} have shape {shape}, expected {seen.k.shape}.")
    note = f"Attention over your rows, {tokens} tokens in blocks {blocks}."
    ctx.expect_close(attention(seen.q, keys, values), seen.out, atol=TOLERANCE, where="attention", note=note)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of all rows: q [T, 9, 64], k and v [T, 3, 64] → [T, 576]."""
    group = Q_HEADS // KV_HEADS
    scores = np.einsum("qhd,khd->hqk", q, k.repeat(group, axis=1)) / np.sqrt(HEAD_DIM)
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v.repeat(group, axis=1)).reshape(len(q), -1)


@check(
    "fork without overwriting",
    "parent and child each write a real key after the fork; both then read all of theirs, bit for bit",
)
def fork_and_write(ctx: Context) -> None:
    keys = Captured(ctx).k
    block_size = int(ctx.rng.choice([4, 8]))
    for n in (
        2 * block_size + 1,
        2 * block_size + int(ctx.rng.integers(2, block_size)),
        3 * block_size,
        1,
        0,
    ):
        fork_once(ctx, keys, n, block_size)


class Fork(NamedTuple):
    """One call of fork: what went in, what came out, and the blocks that it took."""

    parent: list[int]
    n: int
    block_size: int
    child: list[int]
    copies: list[tuple[int, int]]
    new: list[int]

    @property
    def full(self) -> int:
        return self.n // self.block_size

    @property
    def tail(self) -> int:
        return self.n % self.block_size

    @property
    def note(self) -> str:
        given = f"Parent: {self.n} tokens in {self.parent}, block size {self.block_size}."
        return f"{given} Child: {self.child}, copies {self.copies}."


def fork_once(ctx: Context, keys: Array, n: int, block_size: int) -> None:
    """Fork at n tokens, let both requests write token n, read both back; then look for needless blocks."""
    free = Pool(ctx, POOL_BLOCKS)
    parent = [free.take() for _ in range(blocks_for(n, block_size))]
    held = ctx.guest.put(parent)
    moves = ctx.recorder(block_size, POOL_BLOCKS)
    moves.request("A")
    moves.took("A", parent, n)
    moves.move(f"fork({parent}, {n}, {block_size}, take)")
    answer = ctx.guest.call("fork", held, n, block_size, ctx.callback(free.take, "take"))
    child, copies = fork_parts(ctx, answer)
    f = Fork(parent, n, block_size, child, copies, free.taken[len(parent) :])
    record_fork(moves, f)
    name_fork_mistakes(ctx, f)
    ctx.expect_equal(held.value(), parent, where="the parent's table", note="fork leaves it as it is.")
    expect_both_read_back(ctx, f, keys, free)
    needed = 1 if f.tail else 0
    ctx.expect(len(f.new) == needed, f"fork took {len(f.new)} blocks, needed: {needed}. {f.note}")
    ctx.expect_equal(child, [*parent[: f.full], *f.new], where="the child's table", note=f.note)
    right = [(parent[f.full], f.new[0])] if f.tail else []
    ctx.expect_equal(copies, right, where="copies", note=f.note)


def record_fork(moves: MoveRecorder, f: Fork) -> None:
    """The child beside its parent, and the tables and copies as they should be."""
    moves.request("B")
    moves.shares("B", "A", [block for block in f.child if block in f.parent], f.n)
    moves.took("B", [block for block in f.child if block not in f.parent], f.n)
    for source, target in f.copies:
        moves.copied("B", source, target, f.tail)
    own = f.new[:1] or ["its own"]
    right = [*f.parent[: f.full], *(own if f.tail else [])]
    copies = [(f.parent[f.full], own[0])] if f.tail else []
    moves.compare(
        "Requests share full blocks only: both would write into a partly filled one; the child has a copy.",
        [
            *table_rows("child", right, f.child),
            (
                "copies",
                *(", ".join(f"{a} → {b}" for a, b in pairs) or "none" for pairs in (copies, f.copies)),
            ),
        ],
    )


def fork_parts(ctx: Context, answer: Any) -> tuple[list[int], list[tuple[int, int]]]:
    """(child's table, copies) as lists of ints, or a sentence about what fork returned instead."""
    try:
        child, copies = items(answer)
        blocks, pairs = [int(block) for block in child], [(int(a), int(b)) for a, b in copies]
    except (TypeError, ValueError):
        ctx.fail(f"fork returns {answer!r}; return (the child's block ids, [(from, to), …]).", actual=answer)
    strange = [b for b in (*blocks, *(b for pair in pairs for b in pair)) if not 0 <= b < POOL_BLOCKS]
    ctx.expect(not strange, f"There are no blocks {strange}: use ids of the parent's table or from take().")
    return blocks, pairs


def expect_both_read_back(ctx: Context, f: Fork, keys: Array, free: Pool) -> None:
    """Carry out the copies; parent and child each write a key at position n; both read n + 1 rows."""
    count = blocks_for(f.n, f.block_size)
    ctx.expect_equal(len(f.child), count, where="number of blocks in the child's table", note=f.note)
    pool = scattered(keys[: f.n], f.parent, POOL_BLOCKS, f.block_size)
    for source, target in f.copies:
        pool[target] = pool[source]
    written = {"parent": keys[f.n], "child": keys[f.n + 1]}
    tables = {"parent": list(f.parent), "child": list(f.child)}
    for name, table in tables.items():
        if f.tail == 0:
            table.append(free.take())
        pool[table[f.full], f.tail] = written[name]
    for name, table in tables.items():
        rows = pool[np.array(table, dtype=int)].reshape(-1, *keys.shape[1:])[: f.n + 1]
        right = np.concatenate([keys[: f.n], written[name][None]])
        ctx.expect_close(rows, right, where=f"what the {name} reads", note=f.note)


def name_fork_mistakes(ctx: Context, f: Fork) -> None:
    ctx.misconception(
        "partial block shared",
        f.tail > 0 and f.child == f.parent,
        f"Child's token overwrote parent's slot: both write token {f.n} to block {f.parent[-1:]}, "
        f"offset {f.tail}. Copy a partly filled block.",
    )
    ctx.misconception(
        "full blocks copied",
        f.full > 0 and not set(f.child) & set(f.parent[: f.full]),
        f"Full blocks never change: share the first {f.full} instead of copying them.",
    )
    ctx.misconception(
        "block taken for nothing",
        f.tail == 0 and len(f.new) > 0,
        f"{f.n} tokens leave no partly filled block: there is nothing to copy and nothing to take.",
    )
    ctx.misconception(
        "copy forgotten",
        f.tail > 0 and f.child == [*f.parent[: f.full], *f.new] and not f.copies,
        f"The child's last block was never copied: its first {f.tail} slots hold leftovers.",
    )
    ctx.misconception(
        "copied the wrong way",
        f.tail > 0 and [(b, a) for a, b in f.copies] == [(f.parent[f.full], f.child[-1])],
        "The copy goes from the parent's block to the child's: (from, to).",
    )

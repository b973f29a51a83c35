"""The batch's own checks, which need no context."""

from __future__ import annotations

import pytest

from tutor.llama.batch import Batch
from tutor.llama.errors import BadBatch


def test_fills_the_c_struct() -> None:
    batch = Batch(4, 3)
    assert batch.add(11, 0, (2,), False) == 0
    assert batch.add(12, 1, (2, 0), True) == 1
    struct = batch.struct()
    assert struct.n_tokens == len(batch) == 2
    assert [struct.token[i] for i in range(2)] == [11, 12]
    assert [struct.pos[i] for i in range(2)] == [0, 1]
    assert [struct.n_seq_id[i] for i in range(2)] == [1, 2]
    assert [struct.seq_id[0][0], struct.seq_id[1][0], struct.seq_id[1][1]] == [2, 2, 0]
    assert [struct.logits[i] for i in range(2)] == [0, 1]
    assert (batch.wanted, batch.most_slots) == ([1], 2)
    assert batch.spans == {2: [0, 2], 0: [1, 2]}
    assert (batch.lowest, batch.highest) == (11, 12)


def test_clear_forgets_everything() -> None:
    batch = Batch(2)
    batch.add_run([1, 2], 5, 0, True)
    batch.clear()
    assert (len(batch), batch.spans, batch.wanted, batch.most_slots) == (0, {}, [], 0)
    assert batch.add(3, 0, (0,), True) == 0


def test_runs() -> None:
    batch = Batch(5)
    assert batch.add_run([7, 8, 9], 4, 1, True) == 2
    assert (batch.spans, batch.wanted) == ({1: [4, 7]}, [2])
    assert batch.add_run([7, 8], 0, 0, False) == 4
    assert batch.wanted == [2]


@pytest.mark.parametrize("pos", [0, 1, 3, -1])
def test_a_gap_or_a_step_back_is_refused(pos: int) -> None:
    batch = Batch(4)
    batch.add_run([1, 2], 0, 0, False)
    with pytest.raises(BadBatch, match=f"position {pos} follows position 1"):
        batch.add(3, pos, (0,), False)
    assert (len(batch), batch.spans) == (2, {0: [0, 2]})


def test_a_refused_token_of_two_slots_changes_neither() -> None:
    batch = Batch(4)
    batch.add(1, 0, (0,), False)
    batch.add(1, 5, (1,), False)
    with pytest.raises(BadBatch):
        batch.add(2, 1, (0, 1), False)
    assert batch.spans == {0: [0, 1], 1: [5, 6]}


def test_limits() -> None:
    batch = Batch(1, 2)
    for slots in ((), (0, 1, 2)):
        with pytest.raises(BadBatch, match="needs 1 to 2 slots"):
            batch.add(1, 0, slots, False)
    with pytest.raises(BadBatch, match="same slot twice"):
        batch.add(1, 0, (1, 1), False)
    batch.add(1, 0, (0,), False)
    with pytest.raises(BadBatch, match="full"):
        batch.add(2, 1, (0,), False)
    with pytest.raises(BadBatch, match="room for one token"):
        Batch(0)

"""Sessions: what a check drives step by step."""

from __future__ import annotations

import numpy as np
import pytest

from tutor.llama.errors import BadBatch, EngineMisuse
from tutor.llama.reference import ReferenceModel


def test_answers_counts_and_copies(reference: ReferenceModel) -> None:
    ids = reference.tokenize("11, 21, 31,")
    count = len(ids)
    with reference.session(512, 2) as session:
        rows = session.decode(ids, list(range(count)), [0] * count, [False] * (count - 1) + [True])
        assert [row is None for row in rows] == [True] * (count - 1) + [False]
        assert np.array_equal(rows[-1], reference.next_logits(ids))
        both = session.decode([5, 5], [count, 0], [np.int64(0), [1]], [True, True])  # type: ignore[list-item]
        assert both[0] is not None
        assert both[1] is not None
        assert not np.array_equal(both[0], both[1])
        assert (session.calls, session.tokens) == (2, count + 2)
        session.seq_rm(0, count)
        assert (session.pos_max(0), session.pos_max(1)) == (count - 1, 0)
        blob = session.save(0)
        session.clear()
        session.restore(1, blob)
        assert (session.pos_max(0), session.pos_max(1)) == (-1, count - 1)


def test_failures_count_nothing(reference: ReferenceModel) -> None:
    with reference.session(256, 2, "shared") as session:
        with pytest.raises(BadBatch, match="2 tokens, 1 positions"):
            session.decode([1, 2], [0], [0, 0], [True, True])
        for token in (-1, 49152, 2**32 + 5):
            with pytest.raises(BadBatch, match="no token"):
                session.decode([token], [0], [0], [True])
        with pytest.raises(BadBatch, match="empty"):
            session.decode([], [], [], [])
        with pytest.raises(EngineMisuse, match="no slot"):
            session.decode([1], [0], [4_294_967_296], [True])
        assert (session.calls, session.tokens) == (0, 0)
        session.decode([1] * 16, range(16), [0] * 16, [False] * 16)
        assert (session.calls, session.tokens) == (1, 16)
        session.seq_cp(0, 1, 0, 16)
        assert session.pos_max(1) == 15
        session.decode([7], [16], [1], [True])
        assert session.calls == 2


def test_close_is_final(reference: ReferenceModel) -> None:
    session = reference.session(256)
    session.close()
    with pytest.raises(EngineMisuse, match="closed"):
        session.decode([1], [0], [0], [True])

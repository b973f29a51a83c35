"""The lab of *PagedAttention*: blocks that lie anywhere, one at a time, shared where the text is the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from lab_kit import record, views

from tutor.llama.model import Model
from tutor.trace.views import ServingView

BLOCK = 8


@pytest.fixture(scope="module")
def steps(model: Model) -> list[ServingView]:
    """What the screen shows after each step of a run of three requests."""
    store = record(model, "paged", requests=3, block_size=str(BLOCK), num_blocks=48)
    return [view.serving for view in views(store)]


def test_a_request_holds_as_many_blocks_as_its_tokens_fill_and_no_more(steps: list[ServingView]) -> None:
    seen = 0
    for view in steps:
        for request in view.requests:
            if request.status == "running" and request.block_ids:
                assert len(request.block_ids) == -(-request.num_computed_tokens // BLOCK), request
                seen += 1
    assert seen > 50


def test_blocks_come_one_at_a_time_while_a_request_writes(steps: list[ServingView]) -> None:
    for before, after in pairwise(steps):
        for request in after.requests:
            old = before.request(request.request_id)
            if old is not None and old.num_output_tokens and request.status == "running":
                assert len(request.block_ids) - len(old.block_ids) in (0, 1)


def test_blocks_of_the_common_prompt_are_shared_and_the_others_lie_scattered(
    steps: list[ServingView],
) -> None:
    owners = {block.owners for view in steps for block in view.blocks if block.ref_cnt > 1}
    assert any(len(names) == 3 for names in owners)
    tables = [request.block_ids for view in steps for request in view.requests]
    assert any(b != a + 1 for table in tables for a, b in pairwise(table))
    assert all(len(set(table)) == len(table) for table in tables)
    assert steps[-1].num_used_blocks == 0

"""The Hadamard rotation of quantised K and V: with it q4_0 keeps the model's predictions, without it less."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tutor.llama.batch import Batch
from tutor.llama.config import NO_ROTATION
from tutor.llama.context import Context, ContextConfig
from tutor.llama.model import Model

PROSE = """The ferry to the island left at seven, and by half past six the quay was already full. Farmers had
come down from the hills with crates of plums, two boys were trying to sell a dog that did not want
to be sold, and an old woman sat on her suitcase and knitted as if nothing in the world could hurry
her. When the boat came in, the crowd moved forward all at once. Nobody pushed, but nobody gave way
either. A sailor in a blue jersey tied the rope around the post, looked at the sky in the west and
shook his head. There would be wind before the evening, he told the woman with the knitting, and she
answered that there had been wind on the day she was born and on the day she was married, and that
both days had turned out well enough."""

SKIPPED = 64  # the first predictions have little to look back at


def predictions(model: Model, ids: list[int], config: ContextConfig) -> np.ndarray:
    """Log-probabilities after each id from SKIPPED on, float32 [T - SKIPPED, vocabulary]."""
    batch = Batch(len(ids), 1)
    for pos, token in enumerate(ids):
        batch.add(token, pos, (0,), pos >= SKIPPED)
    with Context(model, config) as context:
        context.decode(batch)
        rows = context.rows().copy()
    rows -= rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def test_q4_0_without_rotation_is_worse(model: Model) -> None:
    ids = model.tokenize(PROSE.replace("\n", " "))
    size = len(ids)
    truth = predictions(model, ids, ContextConfig(n_ctx=512, n_batch=size))

    def measure(rotation: bool) -> tuple[float, float]:
        config = ContextConfig(n_ctx=512, n_batch=size, type_k="q4_0", type_v="q4_0", rotation=rotation)
        found = predictions(model, ids, config)
        divergence = float((np.exp(truth) * (truth - found)).sum(axis=1).mean())
        loss = -found[np.arange(size - SKIPPED - 1), ids[SKIPPED + 1 :]].mean()
        return divergence, float(np.exp(loss))

    (kl_on, perplexity_on), (kl_off, perplexity_off) = measure(True), measure(False)
    assert 0.005 < kl_on < 0.2, kl_on
    assert kl_off > 1.5 * kl_on, (kl_on, kl_off)
    assert perplexity_off > perplexity_on, (perplexity_on, perplexity_off)


@pytest.mark.parametrize("before", [None, "0"])
def test_the_environment_is_as_it_was(
    model: Model, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(NO_ROTATION, raising=False)
    if before is not None:
        monkeypatch.setenv(NO_ROTATION, before)
    make, seen = model.lib.llama_init_from_model, []

    def spy(pointer: object, params: object) -> object:
        seen.append(os.environ.get(NO_ROTATION))
        return make(pointer, params)

    monkeypatch.setattr(model.lib, "llama_init_from_model", spy)
    for rotation in (True, False):
        Context(model, ContextConfig(n_ctx=256, type_k="q8_0", type_v="q8_0", rotation=rotation)).close()
        assert os.environ.get(NO_ROTATION) == before
    assert seen == [before, "1"]


def test_rotation_is_nothing_to_a_cache_that_is_not_quantised(model: Model) -> None:
    ids = model.tokenize(PROSE[:400])
    rows = [
        predictions(model, ids, ContextConfig(n_ctx=256, rotation=rotation)) for rotation in (True, False)
    ]
    assert np.array_equal(*rows)

"""The probe says exact when it is, and notices when it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tutor.llama import probe
from tutor.llama.context import ContextConfig
from tutor.llama.model import Model

SHORT = ("The capital of France is", "11, 21, 31,", "A page is a block.")


def test_this_machine_is_exact(model: Model) -> None:
    result = probe.probe(model)
    assert (result.exact, result.max_difference, result.differs) == (True, 0.0, ())
    assert result.sequences == len(probe.PROMPTS)
    assert result.rows == (2 * len(probe.PROMPTS) + 1) * (1 + probe.STEPS)
    assert result.seconds > 0.0


def test_without_flash_attention_it_is_not(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """f16 without flash attention takes another path for one row than for many."""

    def inexact(**values: int) -> ContextConfig:
        return replace(ContextConfig(**values), type_k="f16", type_v="f16", flash_attn=False)

    monkeypatch.setattr(probe, "ContextConfig", inexact)
    monkeypatch.setattr(probe, "PROMPTS", SHORT)
    monkeypatch.setattr(probe, "STEPS", 2)
    result = probe.probe(model)
    assert not result.exact
    assert 0.0 < result.max_difference < 10.0
    assert set(result.differs) <= {"chunked", "two threads", "mixed batches"}
    assert result.differs

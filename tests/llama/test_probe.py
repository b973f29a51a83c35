"""The probe says exact when it is, and notices when it is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tutor.llama import probe
from tutor.llama.context import ContextConfig
from tutor.llama.model import Model

SHORT = ("The capital of France is", "11, 21, 31,", "A page is a block.")


def test_this_machine_is_exact(model: Model) -> None:
    result = probe.probe(model)
    assert (result.exact, result.max_difference, result.differs) == (True, 0.0, ())
    assert result.sequences == len(probe.PROMPTS)
    assert result.rows == 2 * len(probe.PROMPTS) * (1 + probe.STEPS) + 1 + probe.THREADED_STEPS
    assert result.seconds > 0.0
    assert result.summary == f"exact: {result.rows} rows of logits of 4 sequences, no bit differs"


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
    assert result.summary.startswith("not exact: ")
    assert all(name in result.summary for name in result.differs)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Model]:
    """An empty cache, and the models that were really probed; each run gives a number of rows of its own."""
    made: list[Model] = []

    def count(model: Model) -> probe.ProbeResult:
        made.append(model)
        return probe.ProbeResult(True, 4, len(made), 0.0, (), 1.5)

    monkeypatch.setenv("TUTOR_CACHE", str(tmp_path))
    monkeypatch.setattr(probe, "probe", count)
    return made


def test_the_result_is_kept(model: Model, runs: list[Model]) -> None:
    first = probe.probe_cached(model)
    assert probe.probe_cached(model) == first
    assert runs == [model]


@pytest.mark.parametrize("part", ["digest", "version", "cpu", "probe"])
def test_another_machine_or_model_is_probed_anew(
    model: Model, runs: list[Model], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    probe.probe_cached(model)
    match part:
        case "digest":
            monkeypatch.setattr(probe, "file_digest", lambda _path: "0" * 64)
        case "version":
            monkeypatch.setattr("importlib.metadata.version", lambda _name: "0.0.1")
        case "cpu":
            monkeypatch.setattr(probe, "cpu_name", lambda: "another")
        case _:
            monkeypatch.setattr(probe, "VERSION", probe.VERSION + 1)
    assert probe.probe_cached(model).rows == 2
    assert probe.probe_cached(model).rows == 2
    monkeypatch.undo()


@pytest.mark.parametrize("content", ["", "[]", '{"half', "other fields", "no object"])
def test_a_damaged_cache_costs_time_only(
    model: Model, runs: list[Model], tmp_path: Path, content: str
) -> None:
    path = tmp_path / "probes.json"
    kept = {"other fields": {"exact": True, "differs": []}, "no object": 5}
    path.write_text(json.dumps({probe._key(model): kept[content]}) if content in kept else content, "utf-8")
    assert probe.probe_cached(model) == probe.probe_cached(model)
    assert len(runs) == 1


def test_a_cache_that_cannot_be_written_costs_time_only(
    model: Model, runs: list[Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUTOR_CACHE", str(tmp_path / "file"))
    assert [probe.probe_cached(model).rows for _ in range(2)] == [1, 2]


def test_the_cpu_has_a_name(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: A CPU @ 3 GHz\nmodel name\t: B\n", "utf-8")
    assert probe.cpu_name(info) == "A CPU @ 3 GHz"
    info.write_text("Hardware\t: board\n", "utf-8")
    assert probe.cpu_name(info)
    assert probe.cpu_name(tmp_path / "none") == probe.cpu_name(info)

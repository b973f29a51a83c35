"""The lab of *Run a model on your machine*: one real answer in three dialects, held against llama-server."""

from __future__ import annotations

import importlib.util
import json
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lab_kit import cpu_clock, last, lines, record

from tutor.labs import dialects
from tutor.labs.dialects import Bill, Wire
from tutor.labs.registry import get_kind
from tutor.llama.model import Model, find_model
from tutor.trace.views import LabView
from tutor.ui.widgets.panels import make_panel

ROOT = Path(__file__).resolve().parents[2]
WIRE = Wire(1, "smollm2", 1_800_000_000)
COLD = Bill(0, 40, 9, 0.25, 0.4, 0.16, "stop")


@pytest.fixture(scope="module")
def view(model: Model) -> LabView:
    with cpu_clock("tutor.labs.run_local"):
        store = record(model, "run-local", message="Translate 'good morning' to Chinese.", max_tokens=7)
    assert "tokens/s" in get_kind("run-local").plain(last(store))
    return last(store)


def received(view: LabView, dialect: str, call: int) -> str:
    frames = [f for f in view.frames if (f.dialect, f.call, f.way) == (dialect, call, "received")]
    return "".join(frame.text for frame in frames)


def text_of(wire: str, dialect: str) -> str:
    """What a client shows."""
    if dialect == "ollama":
        return "".join(json.loads(line)["message"]["content"] for line in wire.splitlines())
    bodies = [json.loads(line[6:]) for line in wire.splitlines() if line.startswith("data: {")]
    return "".join(c["delta"].get("content") or "" for body in bodies for c in body["choices"])


def fields(view: LabView, dialect: str, call: int) -> dict[str, float]:
    return next(dict(t.fields) for t in view.timings if (t.dialect, t.call) == (dialect, call))


def test_all_dialects_carry_the_same_text_without_broken_characters(view: LabView) -> None:
    texts = {text_of(received(view, d, call), d) for d in dialects.DIALECTS for call in (1, 2)}
    assert len(texts) == 1
    text = texts.pop()
    assert "\ufffd" not in text[:-1] and any(ord(char) > 0x2E80 for char in text)


def test_asked_again_one_prompt_token_is_computed_and_the_first_token_comes_sooner(view: LabView) -> None:
    cold, warm = fields(view, "llama.cpp", 1), fields(view, "llama.cpp", 2)
    prompt = cold["prompt_n"]
    assert (cold["cache_n"], warm["cache_n"], warm["prompt_n"]) == (0, prompt - 1, 1)
    assert cold["prompt_ms"] > 3 * warm["prompt_ms"]
    first, second = fields(view, "ollama", 1), fields(view, "ollama", 2)
    assert first["load_duration"] > 1e6 and "load_duration" not in second
    assert "prompt_eval_cached_count" not in first and second["prompt_eval_cached_count"] == prompt - 1


def test_the_dialects_agree_on_the_rates_and_openai_tells_none(view: LabView) -> None:
    for call in (1, 2):
        told = {t.dialect: t for t in view.timings if t.call == call}
        llama, ollama = told["llama.cpp"], told["ollama"]
        assert llama.prefill_tps is not None and llama.decode_tps is not None
        assert llama.prefill_tps == pytest.approx(ollama.prefill_tps, rel=1e-3)
        assert llama.decode_tps == pytest.approx(ollama.decode_tps, rel=1e-3)
        assert told["openai"].decode_tps is None and told["openai"].ttft_ms is None
        assert {t.context_tokens for t in told.values()} == {
            int(fields(view, "openai", call)["total_tokens"])
        }


def test_rates_of_a_known_answer() -> None:
    for dialect in ("llama.cpp", "ollama"):
        rates = dialects.rates(dialects.last_body(dialect, WIRE, COLD))
        assert rates.prefill_tps == pytest.approx(100) and rates.decode_tps == pytest.approx(50)
        assert rates.context_tokens == 49
    assert dialects.rates(dialects.last_body("llama.cpp", WIRE, COLD)).ttft_ms == pytest.approx(400)
    assert dialects.rates(dialects.last_body("ollama", WIRE, COLD)).ttft_ms == pytest.approx(650)


def test_one_token_and_no_time_have_no_rate() -> None:
    one = Bill(39, 1, 1, 0.0, 0.01, 0.0, "length")
    for dialect in ("llama.cpp", "ollama"):
        assert dialects.rates(dialects.last_body(dialect, WIRE, one)).decode_tps is None
    assert dialects.rates({"done": True}) == dialects.Rates(None, None, None, 0)


@pytest.mark.parametrize("width", [53, 58, 78, 118])
def test_the_panels_keep_their_width_and_show_the_fields(view: LabView, width: int) -> None:
    shown = ""
    for name in get_kind("run-local").panels:
        drawn = lines(make_panel(name).picture(view, width))
        assert max(map(len, drawn)) <= width
        shown += "\n".join(drawn)
    assert "prompt_eval_count" in shown and "tells no time" in shown and "→ POST /api/chat" in shown


# --- against the real server -----------------------------------------------------------------------


def load_bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llama_server_of_lab", ROOT / "bench" / "llama_server.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shape(line: str) -> tuple[object, ...]:
    """What kind of event a data line is."""
    if line == "data: [DONE]":
        return ("done",)
    body = json.loads(line[6:])
    choices = body["choices"]
    reason = bool(choices and choices[0]["finish_reason"])
    return (len(choices), reason, "usage" in body, "timings" in body)


def test_llama_server_ends_its_stream_and_counts_as_the_lab_says() -> None:
    """The events after the text, the names of the fields, and the first token that is not in the rate."""
    bench = load_bench()
    if not bench.available():
        pytest.skip(bench.INSTALL)
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Name three colors."}], "max_tokens": 6, "temperature": 0,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    with bench.LlamaServer(find_model(), 1, 256, 1) as server:
        request = urllib.request.Request(
            f"{server._url}/v1/chat/completions",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            theirs = [line for line in answer.read().decode().splitlines() if line]
    ours = [line for line in dialects.last_text("llama.cpp", WIRE, COLD).splitlines() if line]
    assert [shape(line) for line in theirs[-3:]] == [shape(line) for line in ours]
    told = json.loads(theirs[-2][6:])["timings"]
    assert told.keys() == json.loads(ours[-2][6:])["timings"].keys()
    rate = (told["predicted_n"] - 1) / told["predicted_ms"] * 1e3
    assert told["predicted_per_second"] == pytest.approx(rate, rel=1e-3)
    assert dialects.rates({"timings": told}).decode_tps == pytest.approx(rate)

"""Every lab runs to its end on the real model and shows its phenomenon; knobs refuse nonsense."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lab_kit import last, record

from tutor.labs.registry import UnknownLab, get_kind, kinds
from tutor.labs.scenario import KnobError, default_threads
from tutor.llama.model import Model


def test_hi_costs_a_whole_template(model: Model) -> None:
    view = last(record(model, "request", message="hi", max_tokens=12))
    assert len(view.tokens[-1].token_ids) == 31
    passes = view.lanes[0].passes
    assert passes[0] == 31 and sum(n == 1 for n in passes) == len(view.logits) - 1
    stages = [stage.stage for stage in view.stages]
    assert stages[:3] == ["template", "tokenize", "prefill"] and stages[-2:] == ["detokenize", "stop"]


def test_a_stop_string_ends_the_request(model: Model) -> None:
    view = last(record(model, "request", message="hi", max_tokens=40, stop="there"))
    assert "stop string" in view.stages[-1].detail and "there" not in view.stages[-2].detail


def test_max_tokens_ends_the_request(model: Model) -> None:
    view = last(record(model, "request", message="hi", max_tokens=3))
    assert view.stages[-1].detail.startswith("finish_reason length") and len(view.logits) == 3


def test_token_pieces_are_bytes_and_merges_end_at_llama_cpps_tokens(model: Model) -> None:
    view = last(record(model, "tokens", text="\U0001f469\u200d\U0001f680", word=" tokenization"))
    assert (
        len(view.tokens[0].token_ids) == 8
        and b"".join(view.tokens[0].pieces).decode() == "\U0001f469\u200d\U0001f680"
    )
    assert view.merges[-1].pieces == (b" token", b"ization") and "the same as" in view.note


def test_the_answer_surfaces_in_the_last_block(model: Model) -> None:
    view = last(record(model, "forward"))
    assert view.layers[-1].texts[0] == " Rome"
    assert all(layer.texts[0] != " Rome" for layer in view.layers[:-1])
    assert {tensor.name for tensor in view.tensors} >= {"Qcur-0", "Kcur-0", "Vcur-0", "ffn_out-0", "l_out-0"}


def test_the_twin_computes_every_token_again(model: Model) -> None:
    view = last(record(model, "kv-cache", max_tokens=12, edit_at=4))
    cached, twin = view.lanes
    prompt = cached.passes[0]
    assert cached.passes[:12] == (prompt, *[1] * 11)
    assert twin.passes == tuple(range(prompt, prompt + 12)) and cached.text == twin.text
    assert cached.dropped == ((4, prompt + 11 - 4),)


def test_the_formula_is_llama_cpps_own_figure(model: Model) -> None:
    view = last(record(model, "kv-math"))
    for buffer in view.buffers:
        assert abs(buffer.measured_bytes - buffer.formula_bytes) < 0.006 * 2**20, buffer
    assert {buffer.num_cells for buffer in view.buffers} == {1024, 1280, 1536}


@pytest.mark.parametrize("kind_id", kinds())
def test_every_knob_has_a_valid_default_and_help(kind_id: str) -> None:
    kind = get_kind(kind_id)
    assert kind.settings({}) == {knob.name: knob.default for knob in kind.knobs}
    assert all(knob.help.endswith(".") for knob in kind.knobs) and kind.phenomenon and kind.panels


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"max_num_seqs": "0"}, "goes from 1 to 8"),
        ({"max_num_seqs": "many"}, "whole number"),
        ({"block_size": "5"}, "one of 4, 8, 16, 32"),
        ({"prefix_caching": "maybe"}, "on or off"),
        ({"speed": "1"}, "no knob 'speed'"),
    ],
)
def test_knobs_refuse_nonsense_with_a_sentence(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(KnobError, match=sentence):
        get_kind("paged").settings(given)


def test_an_unknown_lab_names_the_known_ones() -> None:
    with pytest.raises(UnknownLab) as caught:
        get_kind("nothing")
    assert "paged" in str(caught.value)


def test_one_core_is_left_to_the_screen() -> None:
    assert default_threads() >= 1


def tutor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tutor", *arguments], capture_output=True, text=True, check=False
    )


def test_lab_and_replay_commands(tmp_path: Path) -> None:
    path = tmp_path / "k.jsonl"
    done = tutor("lab", "kv-math", "--headless", "--trace", str(path), "--knob", "n_ctx=300")
    assert done.returncode == 0, done.stderr
    replay = tutor("replay", str(path), "--plain")
    assert replay.returncode == 0 and "512 cells" in replay.stdout and "measured" in replay.stdout
    one = tutor("replay", str(path), "--plain", "--at", "1")
    assert one.stdout.count("kv-math:") == 1
    out = tmp_path / "p.json"
    assert tutor("replay", str(path), "--perfetto", str(out)).returncode == 0
    assert "traceEvents" in json.loads(out.read_text())


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["lab", "nothing", "--headless"], 2, "There is no lab 'nothing'"),
        (["lab", "paged", "--headless", "--knob", "num_blocks"], 2, "not NAME=VALUE"),
        (["lab", "paged", "--headless", "--knob", "num_blocks=1"], 2, "goes from"),
        (["lab", "paged", "--headless", "--trace", "/dev/null/x"], 3, "Cannot write the trace"),
        (["--model", "/nowhere.gguf", "lab", "kv-math", "--headless"], 3, "does not exist"),
        (["replay", "/nowhere.jsonl", "--plain"], 3, "Cannot read the trace"),
    ],
)
def test_mistakes_get_a_sentence_and_an_exit_code(arguments: list[str], code: int, sentence: str) -> None:
    done = tutor(*arguments)
    assert done.returncode == code and sentence in done.stderr
    assert "Traceback" not in done.stderr

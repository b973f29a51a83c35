"""The request lab on the real model: one pass a token, stages in order, and their times add up."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import pytest
from lab_kit import begin, last, text, views

from tutor.labs.plain import request_text
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.trace.store import TraceStore
from tutor.trace.views import StageView
from tutor.ui.widgets.panels import make_panel
from tutor.ui.widgets.panels.base import line_width

Run = Callable[..., tuple[TraceStore, float]]
LOOP = ("prefill", "decode")


@pytest.fixture(scope="module")
def run(model: Model) -> Run:
    """(the recording of a run to its end, the seconds that all its steps took), once a set of knobs."""

    @cache
    def make(**given: object) -> tuple[TraceStore, float]:
        producer, store = begin(model, "request", **given)
        started = time.perf_counter()
        while producer.step():
            pass
        return store, time.perf_counter() - started

    return make


def seconds(stages: tuple[StageView, ...]) -> list[float]:
    assert all(stage.duration is not None for stage in stages)
    return [stage.duration or 0.0 for stage in stages]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"max_tokens": 1},
        {"max_tokens": 5},
        {"message": "Count from 1 to 5.", "stop": "\\n\\n", "max_tokens": 60},
    ],
)
def test_the_model_runs_once_for_every_output_token(run: Run, model: Model, given: dict[str, object]) -> None:
    view = last(run(**given)[0])
    prompt = list(view.tokens[0].token_ids)
    output = ReferenceModel(model).greedy(prompt, len(view.logits))
    assert [logits.token_ids[0] for logits in view.logits] == output
    names = [stage.stage for stage in view.stages if stage.stage in LOOP]
    assert names == ["prefill", *["decode"] * (len(output) - 1)]
    assert [count for count in view.lanes[0].passes if count] == [len(prompt), *[1] * (len(output) - 1)]


def test_stages_run_in_order_and_their_times_make_up_the_whole(run: Run) -> None:
    shares = []
    for _ in range(3):  # other work on the machine can fall between two stages
        store, whole = run()
        stages = last(store).stages
        order = list(dict.fromkeys(stage.stage for stage in stages))
        assert order == ["template", "tokenize", "prefill", "decode", "detokenize", "stop"]
        took = seconds(stages)
        assert all(each > 0.0 for each in took) and sum(took) <= whole
        loop = sum(each for each, stage in zip(took, stages, strict=True) if stage.stage in LOOP)
        shares.append((sum(took) / whole, loop / sum(took)))
    assert max(share for share, _ in shares) > 0.4, "the rest is recording"
    assert max(share for _, share in shares) > 0.9, "nearly all of a request is forward passes"


def test_prefill_of_the_whole_prompt_takes_longer_than_a_decode_pass(run: Run) -> None:
    stages = last(run()[0]).stages
    took = dict(zip((stage.stage for stage in reversed(stages)), reversed(seconds(stages)), strict=True))
    decode = sorted(stage.duration or 0.0 for stage in stages if stage.stage == "decode")
    assert took["prefill"] > decode[len(decode) // 2]


def test_the_last_sentence_counts_tokens_and_passes(run: Run) -> None:
    assert "31 tokens in, 11 output tokens, 11 passes of the model." in last(run()[0]).note
    assert "1 output token, 1 pass of" in last(run(max_tokens=1)[0]).note


def test_an_end_marker_on_the_last_allowed_token_is_a_stop(run: Run) -> None:
    assert last(run(max_tokens=11)[0]).stages[-1].detail.startswith("finish_reason stop: the model chose")
    assert last(run(max_tokens=10)[0]).stages[-1].detail.startswith("finish_reason length: max_tokens 10")


def test_a_stop_string_over_two_tokens_is_found_and_cut_off(run: Run) -> None:
    view = last(run(message="Count from 1 to 5.", stop="\\n\\n", max_tokens=60)[0])
    assert view.stages[-1].detail.startswith("finish_reason stop: the stop string")
    assert view.stages[-2].detail and "\n\n" not in view.stages[-2].detail
    assert [logits.texts[0] for logits in view.logits[-2:]] == ["\n", "\n"], "one token a line break"


def test_without_text_it_says_what_to_do(run: Run) -> None:
    store, _ = run(message="", system_prompt=False)
    assert "Press k" in last(store).note and not last(store).logits
    assert last(run(message="", max_tokens=1)[0]).logits, "the template alone is a prompt"


@pytest.mark.parametrize("width", [40, 53, 58, 78, 120])
def test_the_panel_keeps_its_width(run: Run, width: int) -> None:
    store, _ = run(message="猫坐在垫子上。" * 12)
    for view in views(store):
        picture = make_panel("pipeline").picture(view, width)
        assert all(line_width(line) <= width for line in picture.lines)


def test_the_panel_draws_a_timeline(run: Run) -> None:
    view = last(run()[0])
    shown = text(make_panel("pipeline").picture(view, 78)).splitlines()
    assert [line.split()[1] for line in shown[:6]] == [
        "template", "tokenize", "prefill", "decode", "detokenize", "stop",
    ]  # fmt: skip
    assert "×10" in shown[3] and " ms" in shown[3]
    prefill, decode = shown[2], shown[3]
    assert prefill.rindex("█") <= min(decode.index(mark) for mark in "█▓" if mark in decode)
    assert shown[6].split()[0] == "0" and shown[6].endswith(" ms")


def test_the_plain_twin_tells_the_times(run: Run) -> None:
    said = request_text(last(run()[0]))
    assert "decode: " in said and " ms in 10 passes" in said and "prefill: " in said

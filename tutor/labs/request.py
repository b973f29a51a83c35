"""The lab of *Anatomy of an inference request*: one Enter, stage by stage, on the real model."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator

from tutor.labs.plain import request_text
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.labs.top import logits_event
from tutor.trace import events as ev

LANE = "model"


class RequestProducer(StepProducer):
    """Template, tokenize, prefill, decode loop, detokenize, stop."""

    lab = "request"

    def steps(self) -> Iterator[None]:
        parts = self._template()
        yield
        ids = self._tokenize(parts)
        yield
        yield from self._generate(ids)

    def _template(self) -> list[tuple[str, bool]]:
        text = str(self.knobs["message"])
        if self.knobs["system_prompt"]:
            parts = list(self.model.chat_parts([{"role": "user", "content": text}]))
            shown = "".join(part for part, _ in parts)
            self.record(ev.StageEntered("template", shown))
        else:
            parts = [(text, False)]
            self.record(ev.StageEntered("template", f"none: the model gets your text alone: {text}"))
        return parts

    def _tokenize(self, parts: list[tuple[str, bool]]) -> list[int]:
        ids = [i for part, is_markup in parts for i in self.model.tokenize(part, special=is_markup)]
        text = "".join(part for part, _ in parts)
        pieces = tuple(self.model.piece(i).hex() for i in ids)
        self.record(ev.TextTokenized(text, tuple(ids), pieces))
        self.record(ev.StageEntered("tokenize", f"{len(text)} characters became {len(ids)} tokens"))
        return ids

    def _generate(self, ids: list[int]) -> Iterator[None]:
        sequence = list(ids)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        limit, stop = int(self.knobs["max_tokens"]), str(self.knobs["stop"]).replace("\\n", "\n")
        text = ""
        reason = f"length: max_tokens {limit} reached"
        for number in range(1, limit + 1):
            token = self._pass(sequence, number, len(ids), text)
            if self.model.is_eog(token):
                reason = f"stop: the model chose {self.model.piece(token).decode()}, which ends its turn"
                break
            piece = decoder.decode(self.model.piece(token))
            text += piece
            self.record(ev.TokensComputed(LANE, 0, 0, 0.0, len(sequence), piece))
            sequence.append(token)
            if stop and stop in text:
                text = text[: text.index(stop)]
                reason = f"stop: the text contains the stop string {stop!r}"
                break
            yield
        self.record(ev.StageEntered("detokenize", text + decoder.decode(b"", final=True)))
        self.record(ev.StageEntered("stop", reason))

    def _pass(self, sequence: list[int], number: int, num_prompt: int, text: str) -> int:
        """One run of the model; returns the likeliest next token."""
        started = time.perf_counter()
        logits = self.model.next_logits(sequence)
        seconds = time.perf_counter() - started
        new = num_prompt if number == 1 else 1
        stage = "prefill" if number == 1 else "decode"
        self.record(ev.StageEntered(stage, f"pass {number} runs {new} token{'s' if new > 1 else ''}"))
        self.record(ev.TokensComputed(LANE, new, len(sequence), seconds, len(sequence), ""))
        self.record(logits_event(self.model, len(sequence) - 1, logits))
        return int(logits.argmax())


KIND = LabKind(
    id="request",
    title="One Enter, step by step",
    phenomenon="A short message costs a whole prompt of tokens, and the model runs once for every token.",
    producer="tutor.labs.request:RequestProducer",
    knobs=(
        Knob("message", "message", "text", "hi", "What you type before Enter."),
        Knob("system_prompt", "chat template", "bool", True, "Wrap the message in the model's template."),
        Knob("max_tokens", "max_tokens", "int", 24, "The most tokens to write.", 1, 128),
        Knob("stop", "stop string", "text", "", "End when the text contains this (\\n is a line end)."),
    ),
    panels=("pipeline", "tokens", "logits", "lanes"),
    plain=request_text,
)

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
Seconds = dict[str, float]


class RequestProducer(StepProducer):
    """Template, tokenize, prefill, decode loop, detokenize, stop; each with the time that it took."""

    lab = "request"

    def steps(self) -> Iterator[None]:
        parts = self._template()
        yield
        ids = self._tokenize(parts)
        yield
        if not ids:
            self.record(ev.Noted("There is no text. Press k and write some, or turn the chat template on."))
            return
        yield from self._generate(ids)

    def _template(self) -> list[tuple[str, bool]]:
        text = str(self.knobs["message"])
        started = time.perf_counter()
        parts: list[tuple[str, bool]] = [(text, False)]
        if self.knobs["system_prompt"]:
            parts = list(self.model.chat_parts([{"role": "user", "content": text}]))
        seconds = time.perf_counter() - started
        shown = "".join(part for part, _ in parts)
        if not self.knobs["system_prompt"]:
            shown = f"none: the model gets your text alone: {shown}"
        self.record(ev.StageEntered("template", shown, seconds))
        return parts

    def _tokenize(self, parts: list[tuple[str, bool]]) -> list[int]:
        started = time.perf_counter()
        ids = [i for part, is_markup in parts for i in self.model.tokenize(part, special=is_markup)]
        seconds = time.perf_counter() - started
        text = "".join(part for part, _ in parts)
        pieces = tuple(self.model.piece(i).hex() for i in ids)
        self.record(ev.TextTokenized(text, tuple(ids), pieces))
        self.record(ev.StageEntered("tokenize", f"{len(text)} characters became {len(ids)} tokens", seconds))
        return ids

    def _generate(self, ids: list[int]) -> Iterator[None]:
        """The loop. After each pass the newest token becomes text, and the reasons to stop are looked at."""
        sequence = list(ids)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        limit, stop = int(self.knobs["max_tokens"]), str(self.knobs["stop"]).replace("\\n", "\n")
        spent = {"prefill": 0.0, "decode": 0.0, "detokenize": 0.0, "stop": 0.0}
        text, reason = "", ""
        for number in range(1, limit + 1):
            token = self._pass(sequence, number, len(ids), spent)
            started = time.perf_counter()
            piece = "" if self.model.is_eog(token) else decoder.decode(self.model.piece(token))
            text += piece
            checked = time.perf_counter()
            text, reason = self._stopped(token, text, stop, number == limit)
            spent["detokenize"] += checked - started
            spent["stop"] += time.perf_counter() - checked
            if not self.model.is_eog(token):
                self.record(ev.TokensComputed(LANE, 0, 0, 0.0, len(sequence), piece))
            if reason:
                break
            sequence.append(token)
            yield
        self.record(
            ev.StageEntered("detokenize", text + decoder.decode(b"", final=True), spent["detokenize"])
        )
        self.record(ev.StageEntered("stop", reason, spent["stop"]))
        self._say(number, len(ids), spent)

    def _stopped(self, token: int, text: str, stop: str, at_limit: bool) -> tuple[str, str]:
        """The text, cut before a stop string, and why it ends here; no reason when it goes on."""
        if self.model.is_eog(token):
            return text, f"finish_reason stop: the model chose {self.model.piece(token).decode()}"
        if stop and stop in text:
            return text[: text.index(stop)], f"finish_reason stop: the stop string {stop!r} is in the text"
        limit = f"finish_reason length: max_tokens {self.knobs['max_tokens']} reached"
        return text, limit if at_limit else ""

    def _pass(self, sequence: list[int], number: int, num_prompt: int, spent: Seconds) -> int:
        """One run of the model; returns the likeliest next token."""
        started = time.perf_counter()
        logits = self.model.next_logits(sequence)
        token = int(logits.argmax())
        seconds = time.perf_counter() - started
        new = num_prompt if number == 1 else 1
        stage = "prefill" if number == 1 else "decode"
        spent[stage] += seconds
        detail = f"pass {number} runs {new} token{'' if new == 1 else 's'}"
        self.record(ev.StageEntered(stage, detail, seconds))
        self.record(ev.TokensComputed(LANE, new, len(sequence), seconds, len(sequence), ""))
        self.record(logits_event(self.model, len(sequence) - 1, logits))
        return token

    def _say(self, passes: int, num_prompt: int, spent: Seconds) -> None:
        share = (spent["prefill"] + spent["decode"]) / sum(spent.values())
        tokens = f"{passes} output token{'' if passes == 1 else 's'}"
        self.record(
            ev.Noted(
                f"{num_prompt} tokens in, {tokens}, {passes} pass{'' if passes == 1 else 'es'} of the model. "
                f"The passes took {share:.1%} of the time from prefill on."
            )
        )


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

"""The lab of *Run a model on your machine*: one real answer, as three servers would put it on the wire."""

from __future__ import annotations

import codecs
import time
from collections.abc import Generator, Iterator
from typing import Literal

from tutor.labs import dialects
from tutor.labs.dialects import DIALECTS, Bill, Wire
from tutor.labs.plain import heading
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.llama.model import Model
from tutor.llama.session import Session
from tutor.trace import events as ev
from tutor.trace.views import LabView

NAME = "smollm2"
N_CTX = 1024
Ending = Literal["stop", "length"]
Writing = Generator[None, None, tuple[float, int, Ending]]


class RunLocalProducer(StepProducer):
    """Each call: the request in every dialect, a frame for each piece of text, the timing fields.

    All calls use one slot that keeps its KV cache, as the servers do. The first call is a cold start: it also
    loads the model file, and that time is measured.
    """

    lab = "run-local"

    def steps(self) -> Iterator[None]:
        self._held: list[int] = []
        ids = self.model.chat_ids([{"role": "user", "content": str(self.knobs["message"])}])
        room = N_CTX - int(self.knobs["max_tokens"])
        if len(ids) > room:
            self.record(ev.Noted(f"The message has {len(ids)} tokens; its last {room} are used."))
            ids = ids[-room:]
        calls = int(self.knobs["calls"])
        with self.model.session(N_CTX) as session:
            for call in range(1, calls + 1):
                yield from self._call(session, call, ids)
                if call < calls:
                    yield

    def _call(self, session: Session, call: int, ids: list[int]) -> Iterator[None]:
        limit, message = int(self.knobs["max_tokens"]), str(self.knobs["message"])
        wire = Wire(call, NAME, int(time.time()))
        for dialect in DIALECTS:
            text = dialects.request_text(dialect, NAME, message, limit)
            self.record(ev.FrameWritten(call, dialect, "sent", text))
        self.record(ev.Noted(f"Call {call}: the request is on its way, {len(ids)} prompt tokens."))
        yield
        load = self._load() if call == 1 and self.knobs["cold"] else 0.0
        kept = min(_common(self._held, ids), len(ids) - 1)
        session.seq_rm(0, kept)
        token, prefill = self._pass(session, ids[kept:], kept)
        self._held = list(ids)
        said = f"tokens in the KV cache: {kept}, computed: {len(ids) - kept}"
        self.record(ev.Noted(f"Call {call}: prefill took {prefill * 1000:.1f} ms; {said}."))
        decode, count, reason = yield from self._write(session, wire, token, limit)
        bill = Bill(kept, len(ids) - kept, count, load, prefill, decode, reason)
        self._finish(wire, bill)

    def _load(self) -> float:
        """Seconds to load the model file once more: the cold start of a server."""
        began = time.perf_counter()
        Model.load(self.model.path).close()
        return time.perf_counter() - began

    def _pass(self, session: Session, tokens: list[int], start: int) -> tuple[int, float]:
        """Compute tokens at positions start…; returns the likeliest next one and the seconds it took."""
        began = time.perf_counter()
        size, token = len(tokens), 0
        for first in range(0, size, session.n_batch):
            part = tokens[first : first + session.n_batch]
            at, is_last = start + first, first + len(part) == size
            want = [False] * (len(part) - 1) + [is_last]
            row = session.decode(part, range(at, at + len(part)), [0] * len(part), want)[-1]
            token = int(row.argmax()) if row is not None else token
        return token, time.perf_counter() - began

    def _write(self, session: Session, wire: Wire, token: int, limit: int) -> Writing:
        """Send each token as it comes. Returns decode seconds, output tokens and the finish reason."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        seconds, count = 0.0, 1
        while True:
            if self.model.is_eog(token):
                self._send(wire, decoder.decode(b"", final=True))
                return seconds, count, "stop"
            self._send(wire, decoder.decode(self.model.piece(token), final=count == limit))
            if count == limit:
                return seconds, count, "length"
            yield
            self._held.append(token)
            token, took = self._pass(session, [token], len(self._held) - 1)
            seconds += took
            count += 1

    def _send(self, wire: Wire, text: str) -> None:
        """A frame in each dialect; none for half a character, which waits for its other half."""
        if text:
            for dialect in DIALECTS:
                frame = dialects.piece_text(dialect, wire, text)
                self.record(ev.FrameWritten(wire.call, dialect, "received", frame))

    def _finish(self, wire: Wire, bill: Bill) -> None:
        for dialect in DIALECTS:
            text = dialects.last_text(dialect, wire, bill)
            self.record(ev.FrameWritten(wire.call, dialect, "received", text))
            body = dialects.last_body(dialect, wire, bill)
            rates = dialects.rates(body)
            fields = tuple((name, float(value)) for name, value in dialects.timing_fields(body).items())
            self.record(
                ev.TimingsRead(
                    wire.call, dialect, fields, rates.prefill_tps, rates.decode_tps, rates.ttft_ms,
                    rates.context_tokens,
                )
            )  # fmt: skip
        prompt = f"Prompt tokens: {bill.num_cached} from the cache, {bill.num_computed} computed"
        self.record(ev.Noted(f"Call {wire.call} is complete. {prompt}; output tokens: {bill.num_output}."))


def _common(left: list[int], right: list[int]) -> int:
    """How many leading ids two lists share."""
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def wire_text(view: LabView) -> str:
    """The newest frame of each dialect, and the timing fields with the rates that follow from them."""
    lines = [heading(view)] + ([view.note] if view.note else [])
    for dialect in DIALECTS:
        frames = [frame for frame in view.frames if frame.dialect == dialect]
        if frames:
            text = frames[-1].text.strip().replace("\n", " ⏎ ")
            lines.append(f"{dialect} call {frames[-1].call} {frames[-1].way}: {text}")
    for timing in view.timings:
        fields = ", ".join(f"{name} {value:,.10g}" for name, value in timing.fields)
        lines.append(f"{timing.dialect} call {timing.call} reports: {fields}")
        lines.append(f"  prefill {_rate(timing.prefill_tps)}, decode {_rate(timing.decode_tps)}")
    return "\n".join(lines)


def _rate(value: float | None) -> str:
    return "not said" if value is None else f"{value:.1f} tokens/s"


KIND = LabKind(
    id="run-local",
    title="One answer in three dialects",
    phenomenon="The same answer goes out in three forms; asked again, its prompt is hardly computed at all.",
    producer="tutor.labs.run_local:RunLocalProducer",
    knobs=(
        Knob("message", "message", "text", "Name three colors.", "What the client asks."),
        Knob("max_tokens", "max_tokens", "int", 12, "The most tokens to write.", 1, 128),
        Knob("calls", "calls", "int", 2, "How often the same request is sent.", 1, 4),
        Knob("cold", "cold start", "bool", True, "The first call also loads the model file."),
    ),
    panels=("wire-openai", "wire-llama", "wire-ollama", "timings"),
    plain=wire_text,
)

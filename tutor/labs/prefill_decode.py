"""The lab of *Prefill vs decode*: one request, pass by pass, with the time of every pass."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tutor.labs.plain import heading
from tutor.labs.scenario import Knob, LabKind, default_threads
from tutor.labs.steps import StepProducer
from tutor.llama.session import Session
from tutor.metrics.phases import PhaseTotals, phase_totals
from tutor.trace import events as ev
from tutor.trace.views import LabView

TEXT = (
    "A small town lies where two rivers meet. Boats bring grain in autumn, and salt in spring. "
    "The old bridge has nine arches, and every arch has a name that only the ferrymen still know. "
)
SHARE = 4  # the second run has a prompt of this fraction
ROW_STEPS = 8  # passes of one row that make one step of the lab


class PrefillDecodeProducer(StepProducer):
    """Three runs: the request of the knobs, the same with a short prompt, and that prompt row by row."""

    lab = "prefill-decode"

    def steps(self) -> Iterator[None]:
        prompt, output = int(self.knobs["prompt_tokens"]), int(self.knobs["output_tokens"])
        chunk, short = int(self.knobs["n_batch"]), max(1, int(self.knobs["prompt_tokens"]) // SHARE)
        self.model.n_threads = int(self.knobs["threads"])
        ids = self._text(prompt)
        with self.model.session(prompt + output) as session:
            self._warm_up(session, ids)
            yield from self._request(session, f"P {prompt}, N {output}", ids, output, chunk)
            yield
            yield from self._request(session, f"P {short}, N {output}", ids[:short], output, chunk)
            yield
            yield from self._request(session, f"P {short}, a row a pass", ids[:short], 1, 1)
        self._say()

    def _text(self, count: int) -> list[int]:
        ids = self.model.tokenize(TEXT)
        return (ids * (count // len(ids) + 1))[:count]

    def _warm_up(self, session: Session, ids: list[int]) -> None:
        """The first pass also brings the weights into memory; it would count against the first run."""
        part = ids[: session.n_batch]
        session.decode(part, range(len(part)), [0] * len(part), [True] * len(part))

    def _request(self, session: Session, run: str, ids: list[int], output: int, chunk: int) -> Iterator[None]:
        session.clear()
        self._run, self._spent = run, 0.0
        self.record(ev.Noted(f"{run}: prefill in passes of up to {chunk} tokens."))
        token = 0
        for first in range(0, len(ids), chunk):
            part = ids[first : first + chunk]
            is_last = first + len(part) == len(ids)
            every = bool(self.knobs["all_logits"])
            want = [every] * (len(part) - 1) + [every or is_last]
            token = self._pass(session, "prefill", part, first, want)
            if not is_last and (chunk > 1 or first % ROW_STEPS == ROW_STEPS - 1):
                yield
        for position in range(len(ids), len(ids) + output - 1):
            yield
            token = self._pass(session, "decode", [token], position, [True])

    def _pass(self, session: Session, phase: str, part: list[int], start: int, want: list[bool]) -> int:
        """One decode call; returns the likeliest next token, or 0 when its last row had no logits.

        A pass starts when the one before it ended: the pauses in which a person watches do not count.
        """
        began = time.perf_counter()
        row = session.decode(part, range(start, start + len(part)), [0] * len(part), want)[-1]
        took = time.perf_counter() - began
        self.record(ev.PassRun(self._run, phase, len(part), sum(want), self._spent, took))
        self._spent += took
        return int(row.argmax()) if row is not None else 0

    def _say(self) -> None:
        prompt, output = self.knobs["prompt_tokens"], self.knobs["output_tokens"]
        self.record(
            ev.Noted(
                f"Done: {prompt} prompt and {output} output tokens. k changes them; watch which time moves."
            )
        )


def phases_text(view: LabView) -> str:
    """Each run's phases: tokens, passes, milliseconds and tokens a second."""
    lines = [heading(view)] + ([view.note] if view.note else [])
    if view.passes:
        last = view.passes[-1]
        lines.append(
            f"{last.run}: a {last.phase} pass ran {last.num_tokens} rows and gave {last.num_outputs} rows of "
            f"logits in {last.duration * 1000:.1f} ms"
        )
    lines += [_phase_line(total) for total in phase_totals(view.passes)]
    return "\n".join(lines)


def _phase_line(total: PhaseTotals) -> str:
    return (
        f"  {total.run}, {total.phase}: {total.num_tokens} tokens in {total.num_passes} passes, "
        f"{total.num_outputs} rows of logits, {total.duration * 1000:.1f} ms, "
        f"{total.tokens_per_second:.1f} tokens/s"
    )


KIND = LabKind(
    id="prefill-decode",
    title="One request, two phases",
    phenomenon="Prefill runs many rows a pass and decode one, so a token costs less time in prefill.",
    producer="tutor.labs.prefill_decode:PrefillDecodeProducer",
    knobs=(
        Knob("prompt_tokens", "prompt tokens", "int", 256, "P: tokens of the prompt.", 2, 2048),
        Knob("output_tokens", "output tokens", "int", 16, "N: tokens to write.", 1, 128),
        Knob("n_batch", "n_batch", "int", 128, "The most rows that one prefill pass runs.", 1, 512),
        Knob("all_logits", "all logits", "bool", False, "Ask for logits of every row, not of the last."),
        Knob(
            "threads",
            "threads",
            "int",
            default_threads(),
            "CPU threads of each pass.",
            1,
            os.cpu_count() or 1,
        ),
    ),
    panels=("phases", "timeline"),
    plain=phases_text,
)

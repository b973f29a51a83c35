"""The lab of *The KV cache*: the same text written with a cache and without, both really run."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tutor.labs.plain import lanes_text
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.llama.context import ContextConfig
from tutor.llama.session import Session
from tutor.metrics.growth import growth, token_times
from tutor.trace import events as ev
from tutor.trace.views import LabView

CACHED, TWIN = "with cache", "without cache"
N_CTX = 1024
FIRST_POSITION = 64
FILLER = (
    "The ferry leaves when the fog lifts. Until then the passengers drink tea, and the captain says how "
    "deep the river is at every bend. "
)


def positions(far: int) -> list[int]:
    """Where the time of a token is measured: 64, 128, 256 … and `far`; none for a `far` of 0."""
    doubled = [FIRST_POSITION * 2**i for i in range(10)]
    return [p for p in doubled if p < far] + ([far] if far else [])


class KVCacheProducer(StepProducer):
    """Slot 0 keeps its KV cache; slot 1 is emptied before every token and computes everything again."""

    lab = "kv-cache"
    _edited = False

    def steps(self) -> Iterator[None]:
        limit, far = int(self.knobs["max_tokens"]), int(self.knobs["far"])
        prompt = self._prompt(N_CTX - limit)
        sequence = list(prompt)
        totals = {CACHED: 0, TWIN: 0}
        with self.model.session(2 * N_CTX, n_seq=2) as session:
            for _ in range(limit):
                kept = session.pos_max(0) + 1
                token = self._run(session, CACHED, 0, sequence, kept, totals)
                session.seq_rm(1)
                twin = self._run(session, TWIN, 1, sequence, 0, totals)
                if twin != token:
                    self.record(ev.Noted(f"The lanes differ at token {len(sequence) - len(prompt) + 1}."))
                sequence.append(token)
                yield
            self._say(totals, len(prompt), limit)
            yield
            self._edit(session, sequence, totals)
        if far:
            yield
            yield from self._grow(positions(far))

    def _prompt(self, room: int) -> list[int]:
        """The ids of the knob's text: one at least, and no more than there is room for."""
        ids = self.model.tokenize(str(self.knobs["prompt"])) or self.model.tokenize("\n")
        if len(ids) > room:
            self.record(ev.Noted(f"The prompt has {len(ids)} tokens; its last {room} are used."))
        return ids[-room:]

    def _run(
        self, session: Session, lane: str, slot: int, sequence: list[int], start: int, totals: dict[str, int]
    ) -> int:
        """Compute positions start… of the sequence in a slot; returns the likeliest next token."""
        token, seconds = _pass(session, slot, sequence, start)
        num_new = len(sequence) - start
        totals[lane] += num_new
        # After the edit the lane's text is no longer the text of its tokens, so nothing is added to it.
        text = "" if self._edited else self.model.piece(token).decode("utf-8", "replace")
        cells = len(sequence) if lane == CACHED else 0
        self.record(ev.TokensComputed(lane, num_new, totals[lane], seconds, cells, text))
        return token

    def _say(self, totals: dict[str, int], num_prompt: int, limit: int) -> None:
        ratio = totals[TWIN] / totals[CACHED]
        self.record(
            ev.Noted(
                f"P = {num_prompt}, N = {limit}: {totals[CACHED]} tokens computed with the cache, "
                f"{totals[TWIN]} without, {ratio:.1f} times as many."
            )
        )

    def _edit(self, session: Session, sequence: list[int], totals: dict[str, int]) -> None:
        """Change one early token: every later entry has seen it and has to go."""
        position = min(int(self.knobs["edit_at"]), max(0, len(sequence) - 2))
        dropped = session.pos_max(0) + 1 - position
        session.seq_rm(0, position)
        self.record(
            ev.CacheDropped(
                CACHED, position, dropped, f"token {position} changed; later entries have seen it"
            )
        )
        self._edited = True
        sequence[position] = self.model.tokenize(" blue")[0]
        self._run(session, CACHED, 0, sequence, position, totals)
        self.record(
            ev.Noted(f"Token {position} was changed: {dropped} entries were dropped and computed again.")
        )

    def _grow(self, marks: list[int]) -> Iterator[None]:
        """Time the last tokens of texts of growing length, in rounds, so that a slow moment spoils no length.

        K and V are f16 here, llama.cpp's default: nothing is compared, and it reads a long cache faster than
        the bf16 of exact mode, which few CPUs can multiply.
        """
        samples = int(self.knobs["samples"])
        filler = self.model.tokenize(FILLER)
        text = (filler * (marks[-1] // len(filler) + 1))[: marks[-1]]
        twin = len(marks)  # the slot after those of the lengths
        config = ContextConfig(
            n_ctx=(twin + 1) * marks[-1], n_seq_max=twin + 1, n_threads=self.model.n_threads,
            type_k="f16", type_v="f16",
        )  # fmt: skip
        with Session(self.model.model, config) as session:
            for slot, mark in enumerate(marks):
                self.record(ev.Noted(f"A text of {mark} tokens goes into the cache, all but its last ones."))
                yield
                if mark > samples:
                    _pass(session, slot, text[: mark - samples], 0)
            timed: list[ev.TokenTimed] = []
            for left in reversed(range(samples)):
                for slot, mark in enumerate(marks):
                    length = mark - left
                    if length > 0:
                        yield
                        timed += self._time(session, slot, twin, text[:length], mark)
                        self.record(
                            ev.Noted(f"Round {samples - left} of {samples}: token {length} of a text.")
                        )
        self._compare(timed)

    def _time(
        self, session: Session, slot: int, twin: int, text: list[int], mark: int
    ) -> list[ev.TokenTimed]:
        """The text's last token: alone behind its cache, and with all of the text before it."""
        _, alone = _pass(session, slot, text, len(text) - 1)
        session.seq_rm(twin)
        _, again = _pass(session, twin, text, 0)
        timed = [ev.TokenTimed(CACHED, mark, 1, alone), ev.TokenTimed(TWIN, mark, len(text), again)]
        for each in timed:
            self.record(each)
        return timed

    def _compare(self, timed: list[ev.TokenTimed]) -> None:
        times = token_times(timed)
        with_cache, without = growth(times, CACHED), growth(times, TWIN)
        if with_cache is not None and without is not None:
            self.record(
                ev.Noted(
                    f"Token {times[-1].position} of a text against token {times[0].position}: "
                    f"{with_cache:.1f} times the time with the cache, {without:.1f} times without."
                )
            )


def _pass(session: Session, slot: int, sequence: list[int], start: int) -> tuple[int, float]:
    """Compute positions start… of the sequence; returns the likeliest next token and the seconds it took."""
    began, token = time.perf_counter(), 0
    for first in range(start, len(sequence), session.n_batch):
        part = sequence[first : first + session.n_batch]
        is_last = first + len(part) == len(sequence)
        want = [False] * (len(part) - 1) + [is_last]
        row = session.decode(part, range(first, first + len(part)), [slot] * len(part), want)[-1]
        token = int(row.argmax()) if row is not None else token
    return token, time.perf_counter() - began


def kv_cache_text(view: LabView) -> str:
    """The lanes, then the time of one token at each length."""
    lines = [lanes_text(view)]
    for each in token_times(view.timed):
        lines.append(
            f"token {each.position} of a text {each.lane}: {each.seconds * 1000:.1f} ms, up to "
            f"{each.num_tokens} tokens run (median of {each.num_samples})"
        )
    return "\n".join(lines)


KIND = LabKind(
    id="kv-cache",
    title="One cache, one twin without",
    phenomenon="Two lanes write the same text; without a cache the time of a token grows with the text.",
    producer="tutor.labs.kv_cache:KVCacheProducer",
    knobs=(
        Knob(
            "prompt",
            "prompt",
            "text",
            "Once upon a time, there was a little girl who lived in",
            "The text that both lanes continue.",
        ),
        Knob("max_tokens", "max_tokens", "int", 32, "Tokens to write.", 2, 200),
        Knob("edit_at", "edit at", "int", 4, "The position that is changed at the end.", 0, 200),
        Knob(
            "far", "time up to", "int", 512, "Time the last token of texts of up to so many tokens.", 0, 960
        ),
        Knob("samples", "samples", "int", 3, "Tokens timed at each length; the median counts.", 1, 9),
    ),
    panels=("lanes", "growth", "cache"),
    plain=kv_cache_text,
)

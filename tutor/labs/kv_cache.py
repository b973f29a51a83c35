"""The lab of *The KV cache*: the same text written with a cache and without, both really run."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tutor.labs.plain import lanes_text
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.llama.session import Session
from tutor.trace import events as ev

CACHED, TWIN = "with cache", "without cache"
N_CTX = 1024


class KVCacheProducer(StepProducer):
    """Slot 0 keeps its KV cache; slot 1 is emptied before every token and computes everything again."""

    lab = "kv-cache"
    _edited = False

    def steps(self) -> Iterator[None]:
        prompt = self.model.tokenize(str(self.knobs["prompt"]))
        limit = int(self.knobs["max_tokens"])
        sequence = list(prompt)
        totals = {CACHED: 0, TWIN: 0}
        with self.model.session(N_CTX, n_seq=2) as session:
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

    def _run(
        self, session: Session, lane: str, slot: int, sequence: list[int], start: int, totals: dict[str, int]
    ) -> int:
        """Compute positions start… of the sequence in a slot; returns the likeliest next token."""
        new = sequence[start:]
        began = time.perf_counter()
        want = [False] * (len(new) - 1) + [True]
        logits = session.decode(new, range(start, len(sequence)), [slot] * len(new), want)[-1]
        seconds = time.perf_counter() - began
        assert logits is not None
        token = int(logits.argmax())
        totals[lane] += len(new)
        # After the edit the lane's text is no longer the text of its tokens, so nothing is added to it.
        text = "" if self._edited else self.model.piece(token).decode("utf-8", "replace")
        cells = len(sequence) if lane == CACHED else 0
        self.record(ev.TokensComputed(lane, len(new), totals[lane], seconds, cells, text))
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
        position = min(int(self.knobs["edit_at"]), len(sequence) - 2)
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


KIND = LabKind(
    id="kv-cache",
    title="One cache, one twin without",
    phenomenon="Two lanes write the same text; the one without a cache runs many times more tokens.",
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
    ),
    panels=("lanes", "cache"),
    plain=lanes_text,
)

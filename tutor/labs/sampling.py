"""The lab of *Sampling and decoding strategies*: the next token stage by stage, then texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tutor.labs.plain import heading
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.labs.top import top_tokens
from tutor.llama.sampler import choose, distribution, filtered_probs, penalised, rng_for, softmax
from tutor.llama.session import Session
from tutor.serving.sampling import SamplingParams
from tutor.trace import events as ev
from tutor.trace.views import LabView

LAST, FIRST = "last", "first"  # when the temperature acts
SHOWN = 12
DRAWS = 200
GREEDY = "greedy"
MAX_PROMPT = 200
LONGEST_LOOP = 12

Floats = NDArray[np.float64]
Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Stage:
    """One stage: its name, its setting as text, and the probabilities after it, [vocabulary], sum 1."""

    name: str
    setting: str
    probs: Floats


def shape(
    logits: Logits, params: SamplingParams, history: Sequence[int], temperature_first: bool
) -> list[Stage]:
    """The distribution after each stage, the model's own first. llama.cpp has the temperature last."""
    stages = [Stage("model", "", softmax(logits))]
    row = penalised(logits, params, history)
    stages.append(Stage("penalty", _setting(params.repetition_penalty, 1), softmax(row)))
    temperature = Stage("temperature", f"{params.temperature:g}", stages[-1].probs)
    now = SamplingParams(temperature=1.0)
    if temperature_first:
        # Dividing the logits once and filtering at temperature 1 is the other order.
        stages.append(
            replace(temperature, probs=filtered_probs(row, replace(now, temperature=params.temperature)))
        )
        row = np.log(stages[-1].probs, out=np.full(len(row), -np.inf), where=stages[-1].probs > 0)
    now = replace(now, top_k=params.top_k)
    stages.append(Stage("top-k", _setting(params.top_k, 0), filtered_probs(row, now)))
    now = replace(now, top_p=params.top_p)
    stages.append(Stage("top-p", _setting(params.top_p, 1), filtered_probs(row, now)))
    now = replace(now, min_p=params.min_p)
    stages.append(Stage("min-p", _setting(params.min_p, 0), filtered_probs(row, now)))
    if not temperature_first:
        final = replace(now, temperature=params.temperature)
        stages.append(replace(temperature, probs=filtered_probs(row, final)))
    return stages


def _setting(value: float, off: float) -> str:
    return "off" if value == off else f"{value:g}"


def entropy_bits(probs: Floats) -> float:
    """−Σ p log₂ p, in bits."""
    positive = probs[probs > 0]
    return max(0.0, float(-(positive * np.log2(positive)).sum()))


def loop_length(ids: Sequence[int]) -> int:
    """The shortest block of tokens that ends `ids` twice in a row, in tokens; 0 when there is none."""
    for size in range(1, min(LONGEST_LOOP, len(ids) // 2) + 1):
        if list(ids[-size:]) == list(ids[-2 * size : -size]):
            return size
    return 0


class SamplingProducer(StepProducer):
    """Stages of the first token, draws from the result, then several texts side by side."""

    lab = "sampling"

    def steps(self) -> Iterator[None]:
        prompt = self.model.tokenize(str(self.knobs["prompt"]))
        if not prompt:
            self.record(ev.Noted("There is no prompt. Press k and write some."))
            return
        if len(prompt) > MAX_PROMPT:
            self.record(ev.Noted(f"Only the last {MAX_PROMPT} of {len(prompt)} prompt tokens are used."))
            prompt = prompt[-MAX_PROMPT:]
        params = self._params()
        logits = self.model.next_logits(prompt)
        stages = shape(logits, params, prompt, self.knobs["order"] == FIRST)
        ids, _, _ = top_tokens(self.model, stages[0].probs, SHOWN)
        before = stages[0].probs
        for stage in stages:
            self._shaped(stage, before, ids)
            before = stage.probs
            yield
        self._draw(stages[-1].probs, ids)
        yield
        yield from self._streams(prompt, params)

    def _params(self) -> SamplingParams:
        k = self.knobs
        return SamplingParams(
            temperature=float(k["temperature"]),
            top_k=int(k["top_k"]),
            top_p=float(k["top_p"]),
            min_p=float(k["min_p"]),
            repetition_penalty=float(k["penalty"]),
            penalty_last_n=-1,
            seed=int(k["seed"]),
        )

    def _shaped(self, stage: Stage, before: Floats, ids: Sequence[int]) -> None:
        probs = stage.probs
        texts = tuple(self.model.piece(i).decode("utf-8", "replace") for i in ids)
        listed = tuple(float(probs[i]) for i in ids)
        self.record(
            ev.DistributionShaped(
                stage.name, stage.setting, int((probs > 0).sum()), float(before[probs > 0].sum()),
                float(probs.max()), entropy_bits(probs), tuple(ids), texts, listed,
            )
        )  # fmt: skip

    def _draw(self, probs: Floats, ids: Sequence[int]) -> None:
        seed, every = int(self.knobs["seed"]), np.arange(len(probs))
        drawn = [choose(every, probs, rng_for(seed, index)) for index in range(DRAWS)]
        counts = np.bincount(drawn, minlength=len(probs))
        self.record(ev.TokensDrawn(DRAWS, tuple(int(counts[i]) for i in ids)))
        self.record(ev.Noted(f"{DRAWS} real draws from this distribution."))

    # --- texts ----------------------------------------------------------------------------------

    def _streams(self, prompt: list[int], params: SamplingParams) -> Iterator[None]:
        """A greedy text and some drawn ones, all in one batch; each seed has its own random numbers."""
        seeds = [params.seed + index for index in range(int(self.knobs["streams"]))]
        settings = {GREEDY: replace(params, temperature=0.0)}
        settings |= {f"seed {seed}": replace(params, seed=seed) for seed in seeds}
        texts = {name: list(prompt) for name in settings}
        alive = list(settings)
        room = len(prompt) + int(self.knobs["max_tokens"])
        with self.model.session(room * len(settings), n_seq=len(settings)) as session:
            rows = self._prefill(session, prompt, alive)
            self.record(ev.Noted("The same settings write texts; the greedy one always takes the likeliest."))
            for index in range(int(self.knobs["max_tokens"])):
                if index:
                    yield
                    rows = self._decode(session, texts, list(settings), alive)
                for name in alive:
                    self._grow(name, texts[name], len(prompt), settings[name], rows[name], index)
                alive = [name for name in alive if not self.model.is_eog(texts[name][-1])]
                if not alive:
                    break
        self._say({name: loop_length(text[len(prompt) :]) for name, text in texts.items()})

    def _say(self, loops: dict[str, int]) -> None:
        """Which texts end in a loop."""
        looping = [f"{name} ({size} tokens)" for name, size in loops.items() if size]
        if looping:
            self.record(ev.Noted(f"Says the same twice in a row at its end: {', '.join(looping)}."))
        else:
            self.record(ev.Noted("No text ends in a loop."))

    def _prefill(self, session: Session, prompt: list[int], names: list[str]) -> dict[str, Logits]:
        """The prompt runs once, in the first text's slot; the others get a copy of its K and V."""
        count = len(prompt)
        want = [False] * (count - 1) + [True]
        last = session.decode(prompt, range(count), [0] * count, want)[-1]
        assert last is not None
        for slot in range(1, len(names)):
            session.seq_cp(0, slot)
        return dict.fromkeys(names, np.array(last))

    def _decode(
        self, session: Session, texts: dict[str, list[int]], slots: list[str], alive: list[str]
    ) -> dict[str, Logits]:
        """The newest token of each text that goes on, in one pass."""
        rows = session.decode(
            [texts[name][-1] for name in alive],
            [len(texts[name]) - 1 for name in alive],
            [slots.index(name) for name in alive],
            [True] * len(alive),
        )
        return {name: row for name, row in zip(alive, rows, strict=True) if row is not None}

    def _grow(
        self, name: str, text: list[int], num_prompt: int, params: SamplingParams, logits: Logits, index: int
    ) -> None:
        ids, probs = self._next(params, logits, text)
        token = choose(ids, probs, rng_for(params.seed, index))
        text.append(token)
        chance = float(probs[np.searchsorted(ids, token)])
        rank = 1 + int((logits > logits[token]).sum())
        piece = self.model.piece(token).decode("utf-8", "replace")
        self.record(ev.StreamGrew(name, token, piece, chance, rank, loop_length(text[num_prompt:])))

    def _next(
        self, params: SamplingParams, logits: Logits, history: Sequence[int]
    ) -> tuple[NDArray[np.int64], Floats]:
        if self.knobs["order"] != FIRST or params.temperature == 0.0:
            return distribution(logits, params, history)
        scaled = penalised(logits, params, history) / params.temperature
        return distribution(scaled, replace(params, temperature=1.0, repetition_penalty=1.0))


def sampling_text(view: LabView) -> str:
    """The newest stage or draws, then every text so far."""
    lines = [heading(view), *([view.note] if view.note else [])]
    if view.shapes:
        last = view.shapes[-1]
        pairs = zip(last.texts, last.probabilities, strict=True)
        likely = ", ".join(f"{text!r} {p:.1%}" if p else f"{text!r} dropped" for text, p in pairs)
        lines += [
            f"after {last.stage} {last.setting}: {last.num_left} tokens left, they held {last.kept:.1%}, "
            f"entropy {last.entropy:.2f} bits",
            likely,
        ]
        if view.draws is not None:
            drawn = ", ".join(f"{t!r} {n}" for t, n in zip(last.texts, view.draws.counts, strict=True))
            lines.append(f"{view.draws.num_draws} draws: {drawn}")
    texts: dict[str, list[ev.StreamGrew]] = {}
    for grown in view.streams:
        texts.setdefault(grown.stream, []).append(grown)
    for name, tokens in texts.items():
        loop = f" (repeats the last {tokens[-1].repeats} tokens)" if tokens[-1].repeats else ""
        lines.append(f"{name}: {''.join(token.text for token in tokens)!r}{loop}")
    return "\n".join(lines)


KIND = LabKind(
    id="sampling",
    title="Shape the next token",
    phenomenon="High temperature before top-p lets nonsense in; after it, the same settings stay sensible.",
    producer="tutor.labs.sampling:SamplingProducer",
    knobs=(
        Knob("prompt", "prompt", "text", "They looked at the sky and", "The text that the model continues."),
        Knob("temperature", "temperature", "float", 1.0, "Divides the logits; 0 is greedy.", 0, 5),
        Knob("top_k", "top-k", "int", 0, "Keeps the k likeliest tokens; 0 is off.", 0, 49152),
        Knob(
            "top_p", "top-p", "float", 0.9, "Keeps the fewest tokens that hold this share; 1 is off.", 0.01, 1
        ),
        Knob(
            "min_p", "min-p", "float", 0.0, "Keeps tokens this likely relative to the first; 0 is off.", 0, 1
        ),
        Knob("penalty", "penalty", "float", 1.0, "Repetition penalty; 1 is off.", 0.5, 2),
        Knob(
            "order",
            "T acts",
            "choice",
            LAST,
            "When the temperature acts; llama.cpp: last.",
            choices=(LAST, FIRST),
        ),
        Knob("seed", "seed", "int", 1, "Decides the random numbers of the first text.", 0, 10**9),
        Knob("streams", "texts", "int", 3, "Drawn texts beside the greedy one.", 1, 6),
        Knob("max_tokens", "tokens", "int", 32, "Length of each text.", 1, 100),
    ),
    panels=("distribution", "streams", "stages"),
    plain=sampling_text,
)

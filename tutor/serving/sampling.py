"""How the next token of a request is drawn, and when its text ends: the settings, and nothing else.

The order in which they act is that of llama.cpp's default chain: penalties, top-k, top-p, min-p, temperature.
Sources: llama.cpp's samplers (https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h);
Keskar et al. 2019, arXiv:1909.05858 (repetition penalty); Holtzman et al. 2020, arXiv:1904.09751 (top-p);
the OpenAI API reference (presence and frequency penalty, seed, stop, logprobs).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tutor.serving.errors import ConfigError

MAX_LOGPROBS = 20  # as in the OpenAI API
MAX_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The defaults are greedy decoding with everything switched off.

    temperature         divides the logits that are left; 0 takes the most likely token (of equals the first).
    top_k               keeps the k most likely tokens; 0 is off.
    top_p               keeps the fewest most likely tokens whose probabilities reach top_p, the one that
                        reaches it included; 1 is off. Probabilities are those after top-k, at temperature 1.
    min_p               keeps tokens that are at least min_p times as likely as the most likely one; 0 is off.
    seed                with the place of a token in the output, decides its random number.
    repetition_penalty  r: the logit z of each token among the last `penalty_last_n` of prompt and output
                        becomes z / r when z is above 0 and z * r otherwise, however often it occurs there;
                        1 is off.
    presence_penalty    is taken off the logit of each token that is in the output, once.
    frequency_penalty   is taken off the logit of each token that is in the output, once an occurrence.
    penalty_last_n      the window of repetition_penalty: -1 is prompt and output as a whole, 0 is off.
    logprobs            how many of the most likely tokens are returned with each token; 0 is off.
    stop                the text ends before the first of these strings (see stop_strings.py).
    ignore_eos          do not end at the model's end-of-generation tokens.

    The prompt counts for the repetition penalty only. llama.cpp counts all three penalties in one window
    over prompt and output; the results are the same when that window holds exactly the output.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logprobs: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    @property
    def is_plain_greedy(self) -> bool:
        """Is the token simply the one with the highest logit?"""
        return self.temperature == 0.0 and self.logprobs == 0 and not self.has_penalties

    @property
    def has_penalties(self) -> bool:
        """Does a token's logit depend on the tokens before it?"""
        repeats = self.repetition_penalty != 1.0 and self.penalty_last_n != 0
        return repeats or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    def check(self) -> None:
        """Raises ConfigError for the first value outside its range, NaN included."""
        _within("temperature", self.temperature, 0.0 <= self.temperature < math.inf, "0 (greedy) or more")
        _within("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _within("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0 and at most 1 (off)")
        _within("min_p", self.min_p, 0.0 <= self.min_p <= 1.0, "between 0 (off) and 1")
        _within("seed", self.seed, 0 <= self.seed <= MAX_SEED, "between 0 and 2^64 - 1")
        repeat = self.repetition_penalty
        _within("repetition_penalty", repeat, 0.0 < repeat < math.inf, "above 0; 1 is off")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _within(name, value, -2.0 <= value <= 2.0, "between -2 and 2; 0 is off")
        last = self.penalty_last_n
        _within("penalty_last_n", last, last >= -1, "-1 (all tokens), 0 (off) or a number of tokens")
        _within("logprobs", self.logprobs, 0 <= self.logprobs <= MAX_LOGPROBS, f"0 (off) to {MAX_LOGPROBS}")
        if not isinstance(self.stop, tuple):
            raise ConfigError(f"stop is {self.stop!r}. It has to be a tuple of strings.")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise ConfigError(f"stop has {text!r}. Each stop string has to have a character at least.")


def _within(name: str, value: float, valid: bool, valid_range: str) -> None:
    if not valid:
        raise ConfigError(f"{name} is {value}. It has to be {valid_range}.")

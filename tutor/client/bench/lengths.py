"""How long prompts and answers are: fixed, or drawn from a distribution, in tokens."""

from __future__ import annotations

import re

import msgspec
import numpy as np

SHAPES = "100 (fixed), 50-200 (uniform) or 100~20 (normal: mean~standard deviation)"
LONGEST = 2_000_000  # tokens; longer than any context so far
_FIXED = re.compile(r"(\d+)$")
_UNIFORM = re.compile(r"(\d+)-(\d+)$")
_NORMAL = re.compile(r"(\d+)~(\d+)$")


class LengthError(ValueError):
    """The text does not describe a length."""


class Lengths(msgspec.Struct, frozen=True):
    """`kind`: fixed (`a` tokens), uniform (`a` to `b`, both possible), normal (mean `a`, deviation `b`)."""

    kind: str
    a: int
    b: int = 0

    @property
    def longest(self) -> int:
        """No draw is longer: three deviations above the mean is where a normal draw is cut."""
        return {"fixed": self.a, "uniform": self.b}.get(self.kind, self.a + 3 * self.b)

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """`count` lengths of at least 1 token."""
        if self.kind == "fixed":
            return [self.a] * count
        if self.kind == "uniform":
            return [int(x) for x in rng.integers(self.a, self.b, size=count, endpoint=True)]
        drawn = np.rint(rng.normal(self.a, self.b, size=count))
        return [int(x) for x in np.clip(drawn, 1, self.longest)]

    def __str__(self) -> str:
        return {"fixed": f"{self.a}", "uniform": f"{self.a}-{self.b}"}.get(self.kind, f"{self.a}~{self.b}")


def parse_lengths(text: str) -> Lengths:
    """LengthError with the allowed shapes for anything else."""
    text = text.replace(" ", "")
    if match := _FIXED.match(text):
        lengths = Lengths("fixed", int(match[1]))
    elif match := _UNIFORM.match(text):
        lengths = Lengths("uniform", int(match[1]), int(match[2]))
    elif match := _NORMAL.match(text):
        lengths = Lengths("normal", int(match[1]), int(match[2]))
    else:
        raise LengthError(f"{text!r} is not a length. Give {SHAPES}.")
    if lengths.a < 1 or (lengths.kind == "uniform" and lengths.b < lengths.a):
        raise LengthError(f"{text!r} is not a length of 1 token or more. Give {SHAPES}.")
    if lengths.longest > LONGEST:
        raise LengthError(f"{text!r} goes beyond {LONGEST:,} tokens.")
    return lengths

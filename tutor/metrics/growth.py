"""How the time of one new token changes with the text before it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from tutor.trace.events import TokenTimed


class TokenTime(msgspec.Struct, frozen=True):
    """What the tokens of one lane took at one length of the text, as the median of `num_samples` tokens."""

    lane: str
    position: int
    num_samples: int
    num_tokens: int  # the most that ran for one of them
    seconds: float


def token_times(timed: Sequence[TokenTimed]) -> tuple[TokenTime, ...]:
    """One entry for each (position, lane): positions in order, lanes in the order in which they began."""
    groups: dict[tuple[int, str], list[TokenTimed]] = {}
    for each in timed:
        groups.setdefault((each.position, each.lane), []).append(each)
    lanes = list(dict.fromkeys(each.lane for each in timed))
    ordered = sorted(groups, key=lambda key: (key[0], lanes.index(key[1])))
    return tuple(
        TokenTime(
            lane,
            position,
            len(groups[position, lane]),
            max(each.num_tokens for each in groups[position, lane]),
            median(each.duration for each in groups[position, lane]),
        )
        for position, lane in ordered
    )


def growth(times: Sequence[TokenTime], lane: str) -> float | None:
    """The time at the last position over the time at the first; None before there are two positions."""
    mine = [each for each in times if each.lane == lane]
    if len(mine) < 2 or not mine[0].seconds:
        return None
    return mine[-1].seconds / mine[0].seconds

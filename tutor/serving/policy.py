"""When waiting requests may join: after every step (continuous) or when the whole batch is done (static)."""

from __future__ import annotations

from typing import Protocol

from tutor.serving.errors import ConfigError


class BatchingPolicy(Protocol):
    """`holds_slots`: a finished request keeps its slot until the batch ends."""

    name: str
    holds_slots: bool

    def begin_step(self, num_running: int, num_waiting: int, max_num_seqs: int) -> None:
        """Called before each step's decisions."""
        ...

    def may_admit(self) -> bool:
        """Whether the head of the waiting queue may join now, as far as the policy is concerned."""
        ...

    def admitted(self) -> None:
        """A request has just joined."""
        ...


class ContinuousBatching:
    """Iteration-level scheduling [Orca, OSDI 2022]: a slot is refilled as soon as it is free."""

    name = "continuous"
    holds_slots = False

    def begin_step(self, num_running: int, num_waiting: int, max_num_seqs: int) -> None:
        """Nothing to remember: every step may admit."""

    def may_admit(self) -> bool:
        return True

    def admitted(self) -> None:
        """Nothing to count."""


class StaticBatching:
    """The batch is formed once and runs until its longest request ends; finished lanes idle.

    Its members are fixed when it starts; the step's token budget may spread their prefills over steps.
    """

    name = "static"
    holds_slots = True

    def __init__(self) -> None:
        self._places = 0

    def begin_step(self, num_running: int, num_waiting: int, max_num_seqs: int) -> None:
        if num_running == 0:
            self._places = min(num_waiting, max_num_seqs)

    def may_admit(self) -> bool:
        return self._places > 0

    def admitted(self) -> None:
        self._places -= 1


def batching_policy(name: str) -> BatchingPolicy:
    policies: dict[str, type[ContinuousBatching] | type[StaticBatching]] = {
        "continuous": ContinuousBatching,
        "static": StaticBatching,
    }
    if name not in policies:
        raise ConfigError(f"batching is one of {', '.join(policies)}, not {name!r}.")
    return policies[name]()

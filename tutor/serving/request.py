"""A request and its life: WAITING → RUNNING → (PREEMPTED → RUNNING)* → FINISHED."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from tutor.serving.prefix_cache import Link
from tutor.serving.sampling import SamplingParams
from tutor.serving.stop_strings import StopChecker

if TYPE_CHECKING:
    from tutor.serving.block_pool import KVCacheBlock
    from tutor.serving.outputs import TokenLogprob


class RequestStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED_STOPPED = "stop"
    FINISHED_LENGTH = "length"
    FINISHED_ABORTED = "abort"

    @property
    def is_finished(self) -> bool:
        return self.name.startswith("FINISHED")


@dataclass(slots=True, eq=False)
class Request:
    """One request. Counts are tokens; `num_computed_tokens` is how many have KV in the cache.

    Prefill and decode are not modes: what a step has to run is `num_tokens - num_computed_tokens`.
    `block_table` is written by the KVCacheManager: position p lives in `block_table[p // block_size]`.
    `cache_salt` keeps its prefixes apart from those of other salts (one a tenant, say).
    """

    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int
    label: str = ""
    prompt: str = ""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop_token_ids: frozenset[int] = frozenset()
    priority: int = 0
    cache_salt: str = ""
    fork_of: str = ""  # id of the request whose prompt KV this one shares (n > 1 samples of one prompt)

    status: RequestStatus = RequestStatus.WAITING
    slot: int | None = None
    token_ids: list[int] = field(init=False)  # prompt and output so far
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    block_table: list[KVCacheBlock] = field(default_factory=list, repr=False)
    block_hashes: list[Link] = field(default_factory=list, repr=False)
    num_stored_blocks: int = 0  # leading blocks that were offered to the prefix cache
    computing: int = 0  # hash of the block that it is computing now, for those who wait for it
    num_swapped_tokens: int = 0  # KV that was saved in host memory
    lossy: bool = False  # part of its KV came from a lossy tier, so its blocks are not shared
    drafts: list[int] = field(default_factory=list)  # guesses that the running step verifies
    draft_source: str = ""
    logprobs: list[TokenLogprob] = field(
        default_factory=list, repr=False
    )  # one an output token, if asked for
    _stop: StopChecker | None = field(default=None, init=False, repr=False)
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), repr=False
    )

    def __post_init__(self) -> None:
        if not self.prompt_token_ids:
            raise ValueError("a request needs at least one prompt token")
        if self.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1")
        self.token_ids = list(self.prompt_token_ids)
        if self.sampling.stop:
            self._stop = StopChecker(self.sampling.stop)

    def forks(self, n: int) -> list[Request]:
        """This request and n - 1 more samples of its prompt: they share its KV and draw with other seeds."""
        more = [
            Request(
                f"{self.request_id}.{i}",
                self.prompt_token_ids,
                self.max_tokens,
                f"{self.label}{i}" if self.label else "",
                self.prompt,
                replace(self.sampling, seed=(self.sampling.seed + i) % 2**64),
                self.stop_token_ids,
                self.priority,
                self.cache_salt,
                self.request_id,
            )
            for i in range(1, n)
        ]
        return [self, *more]

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt plus output so far; the newest output token has no KV yet."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[len(self.prompt_token_ids) :]

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_decoding(self) -> bool:
        """Only the newest output token is left to compute."""
        return self.num_uncomputed_tokens == 1 and self.num_output_tokens > 0

    @property
    def name(self) -> str:
        """What people call it: its label, else its id."""
        return self.label or self.request_id

    def append(self, token_id: int, piece: bytes) -> tuple[str, RequestStatus | None]:
        """Add a sampled token: the text that may be shown now, and how the request ended, if it did.

        Text is held back while it could be half a character or the start of a stop string. An end token wins
        over the length limit; it has no text (`piece` is ignored).
        """
        self.token_ids.append(token_id)
        if token_id in self.stop_token_ids and not self.sampling.ignore_eos:
            return self._last_text(b""), RequestStatus.FINISHED_STOPPED
        if self.num_output_tokens >= self.max_tokens:
            text = self._last_text(piece)
            stopped = self._stop is not None and self._stop.stopped
            return text, RequestStatus.FINISHED_STOPPED if stopped else RequestStatus.FINISHED_LENGTH
        text = self._decoder.decode(piece)
        if self._stop is None:
            return text, None
        text, stopped = self._stop.feed(text)
        return text, RequestStatus.FINISHED_STOPPED if stopped else None

    def _last_text(self, piece: bytes) -> str:
        """All that is left to show; a character that never became complete is U+FFFD."""
        text = self._decoder.decode(piece, final=True)
        if self._stop is None:
            return text
        text, stopped = self._stop.feed(text)
        return text if stopped else text + self._stop.flush()

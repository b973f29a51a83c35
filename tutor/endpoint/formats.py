"""OpenAI's answers to a chat and to a completion: whole, or as the data of server-sent events."""

from __future__ import annotations

import time
from typing import Protocol

import msgspec

from tutor.endpoint import schemas as s
from tutor.endpoint.answers import chat_logprobs, completion_logprobs, ending, timings, usage
from tutor.endpoint.errors import ApiError, ErrorAnswer
from tutor.endpoint.generation import Generation, Piece, Sample

DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode


class Format(Protocol):
    """How one request is answered. `media_type` is that of the stream."""

    media_type: str

    def whole(self, generation: Generation) -> bytes:
        """The answer when all samples have finished."""
        ...

    def piece(self, generation: Generation, piece: Piece) -> bytes:
        """What goes out for a step's output; b"" when there is nothing to say."""
        ...

    def end(self, generation: Generation) -> bytes:
        """What goes out after the last piece."""
        ...

    def error(self, error: ApiError) -> bytes:
        """What goes out when the engine goes away in the middle."""
        ...


def _event(chunk: msgspec.Struct) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"


class _OpenAI:
    """What both formats share. `num_top`: how many likely tokens to name, None without logprobs."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(
        self, answer_id: str, model: str, fingerprint: str, num_top: int | None, options: s.StreamOptions
    ) -> None:
        self._id = answer_id
        self._model = model
        self._fingerprint = fingerprint
        self._num_top = num_top
        self._options = options
        self._created = int(time.time())
        self._num_ended = 0

    def error(self, error: ApiError) -> bytes:
        return _event(ErrorAnswer(error.body))

    def _running_usage(self, generation: Generation) -> s.Usage | None:
        return usage(generation) if self._options.continuous_usage_stats else None

    def _closing(self, generation: Generation, piece: Piece) -> s.Timings | None:
        """Timings go with the last chunk that has a choice, unless one with the usage comes after it."""
        if piece.output.finish_reason and not self._options.include_usage:
            self._num_ended += 1
            if self._num_ended == generation.num_samples:
                return timings(generation.samples[0])
        return None


class ChatFormat(_OpenAI):
    """/v1/chat/completions."""

    def whole(self, generation: Generation) -> bytes:
        choices = [self._choice(sample) for sample in generation.samples]
        return _encode(
            s.ChatAnswer(
                self._id, "chat.completion", self._created, self._model, choices, usage(generation),
                timings(generation.samples[0]), self._fingerprint,
            )
        )  # fmt: skip

    def _choice(self, sample: Sample) -> s.ChatChoice:
        logprobs = None if self._num_top is None else chat_logprobs(sample.logprobs, self._num_top)
        message = s.AnswerMessage("assistant", "".join(sample.text))
        return s.ChatChoice(sample.index, message, logprobs, ending(sample.finish_reason))

    def piece(self, generation: Generation, piece: Piece) -> bytes:
        """The role comes with the first token, so that a client's clock of the first chunk shows TTFT."""
        output, sample = piece.output, piece.sample
        parts = []
        if output.num_tokens and not sample.was_opened:
            sample.was_opened = True
            parts.append(self._chunk(generation, sample.index, s.Delta("assistant", ""), piece, False))
        if output.text or (output.logprobs and self._num_top is not None):
            parts.append(self._chunk(generation, sample.index, s.Delta(content=output.text), piece, True))
        if output.finish_reason:
            choice = s.ChunkChoice(sample.index, s.Delta(), None, ending(output.finish_reason))
            parts.append(
                self._wrap([choice], self._running_usage(generation), self._closing(generation, piece))
            )
        return b"".join(parts)

    def _chunk(self, generation: Generation, index: int, delta: s.Delta, piece: Piece, told: bool) -> bytes:
        logprobs = None
        if told and self._num_top is not None:
            logprobs = chat_logprobs(piece.output.logprobs, self._num_top)
        return self._wrap([s.ChunkChoice(index, delta, logprobs, None)], self._running_usage(generation))

    def _wrap(
        self, choices: list[s.ChunkChoice], used: s.Usage | None, timed: s.Timings | None = None
    ) -> bytes:
        return _event(
            s.ChatChunk(
                self._id, "chat.completion.chunk", self._created, self._model, choices, self._fingerprint,
                used, timed,
            )
        )  # fmt: skip

    def end(self, generation: Generation) -> bytes:
        if not self._options.include_usage:
            return DONE
        return self._wrap([], usage(generation), timings(generation.samples[0])) + DONE


class CompletionFormat(_OpenAI):
    """/v1/completions."""

    def whole(self, generation: Generation) -> bytes:
        choices = []
        for sample in generation.samples:
            logprobs = None
            if self._num_top is not None:
                logprobs = completion_logprobs(sample.logprobs, self._num_top, 0)
            text = "".join(sample.text)
            choices.append(s.CompletionChoice(sample.index, text, logprobs, ending(sample.finish_reason)))
        return _encode(
            s.CompletionAnswer(
                self._id, "text_completion", self._created, self._model, choices, usage(generation),
                timings(generation.samples[0]), self._fingerprint,
            )
        )  # fmt: skip

    def piece(self, generation: Generation, piece: Piece) -> bytes:
        output, sample = piece.output, piece.sample
        if not (output.text or output.finish_reason or (output.logprobs and self._num_top is not None)):
            return b""
        logprobs = None
        if self._num_top is not None:
            logprobs = completion_logprobs(output.logprobs, self._num_top, sample.num_streamed_chars)
            sample.num_streamed_chars += sum(map(len, logprobs.tokens))
        reason = ending(output.finish_reason) if output.finish_reason else None
        choice = s.CompletionChoice(sample.index, output.text, logprobs, reason)
        return self._wrap([choice], self._running_usage(generation), self._closing(generation, piece))

    def _wrap(
        self, choices: list[s.CompletionChoice], used: s.Usage | None, timed: s.Timings | None = None
    ) -> bytes:
        return _event(
            s.CompletionChunk(
                self._id, "text_completion", self._created, self._model, choices, self._fingerprint, used,
                timed,
            )
        )  # fmt: skip

    def end(self, generation: Generation) -> bytes:
        if not self._options.include_usage:
            return DONE
        return self._wrap([], usage(generation), timings(generation.samples[0])) + DONE

"""The parts that OpenAI's answers are made of: usage, timings, logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tutor.endpoint import messages as msg
from tutor.endpoint import schemas as s
from tutor.endpoint.generation import Generation, Sample

Ending = Literal["stop", "length"]


def ending(reason: str) -> Ending:
    """A text that was stopped from outside is as long as it could get."""
    return "stop" if reason == "stop" else "length"


def usage(generation: Generation) -> s.Usage:
    """What was used so far. A prompt counts once, however many samples it has."""
    samples = generation.samples
    first = samples[:: generation.submits[0].n]
    prompt = sum(sample.num_prompt_tokens for sample in first)
    completion = sum(sample.num_tokens for sample in samples)
    cached = sum(sample.num_cached_tokens for sample in first)
    return s.Usage(prompt, completion, prompt + completion, s.PromptDetails(cached))


def timings(sample: Sample) -> s.Timings:
    """prompt_ms runs from admission to the first token; predicted_ms from there to the last.

    So `predicted_n` tokens have one gap less, and rate and time per token count gaps, as llama-server's do.
    """
    prompt_n = sample.num_prompt_tokens - sample.num_cached_tokens
    prompt_ms = 1e3 * max(0.0, sample.first_token_at - sample.admitted_at)
    predicted_ms = 1e3 * (sample.last_token_at - sample.first_token_at)
    gaps = max(0, sample.num_tokens - 1)
    return s.Timings(
        cache_n=sample.num_cached_tokens,
        prompt_n=prompt_n,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=prompt_ms / prompt_n if prompt_n else 0.0,
        prompt_per_second=1e3 * prompt_n / prompt_ms if prompt_ms else 0.0,
        predicted_n=sample.num_tokens,
        predicted_ms=predicted_ms,
        predicted_per_token_ms=predicted_ms / gaps if gaps else 0.0,
        predicted_per_second=1e3 * gaps / predicted_ms if predicted_ms else 0.0,
        draft_n=sample.num_drafted or None,
        draft_n_accepted=sample.num_accepted if sample.num_drafted else None,
    )


# --- logprobs -----------------------------------------------------------------------------------


def _shown(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


def _name(piece: bytes) -> str:
    """A token as a key: half a character is written as bytes, as OpenAI does."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def chat_logprobs(told: Sequence[msg.TokenLogprobs], num_top: int) -> s.ChatLogprobs:
    content = []
    for entry in told:
        token = entry.token
        top = [s.TopLogprob(_shown(t.piece), t.logprob, list(t.piece)) for t in entry.top[:num_top]]
        content.append(s.TokenLogprob(_shown(token.piece), token.logprob, list(token.piece), top))
    return s.ChatLogprobs(content)


def completion_logprobs(told: Sequence[msg.TokenLogprobs], num_top: int, offset: int) -> s.CompletionLogprobs:
    tokens, offsets, top = [], [], []
    for entry in told:
        tokens.append(_name(entry.token.piece))
        offsets.append(offset)
        offset += len(_shown(entry.token.piece))
        top.append({_name(t.piece): t.logprob for t in entry.top[:num_top]})
    return s.CompletionLogprobs(tokens, [entry.token.logprob for entry in told], top, offsets)

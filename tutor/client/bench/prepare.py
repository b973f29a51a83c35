"""Before the load: which model, how words become tokens, whether prompts are cached, warm-up."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable

import httpx2
import msgspec

from tutor.client.bench.record import RequestRecord, latency
from tutor.client.bench.stream import JSON, Target, Usage, ask, encode
from tutor.client.bench.workload import Load, Ratio, fresh_prompts, warm_prompts
from tutor.client.http import ClientError, Refused, Unreachable, fetch, message_of, send, why

FEW_WORDS, MANY_WORDS = 12, 60
PROBES = 3


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model] = []


class _Whole(msgspec.Struct):
    usage: Usage | None = None


class CacheProbe(msgspec.Struct, frozen=True):
    """The same prompts sent twice, one request at a time, before the load. TTFT medians in seconds.

    `cached_tokens`: what the server says it took from its cache the second time; None when it does not say.
    """

    first_ttft: float
    second_ttft: float
    cached_tokens: int | None

    @property
    def caches(self) -> bool:
        """The server says so, or the second answer began in less than half the time."""
        if self.cached_tokens is not None:
            return self.cached_tokens > 0
        return self.second_ttft < self.first_ttft / 2


def _refused(response: httpx2.Response) -> Refused:
    """With what to try next, where the status tells."""
    message = message_of(response.content)
    advice = {
        401: "Give its key with --api-key or in OPENAI_API_KEY.",
        403: "Give its key with --api-key or in OPENAI_API_KEY.",
        404: f"Asked for {response.url.path}: is this an OpenAI-compatible server, and its root?",
    }.get(response.status_code)
    if response.history:
        advice = f"The address leads on to {response.url}: give that one."
    if advice and not (response.status_code == 404 and "model" in message):
        message = f"{message.rstrip('.')}. {advice}"
    return Refused(response.status_code, message)


async def find_model_id(client: httpx2.AsyncClient) -> str:
    """The first model that the server lists. ClientError when it lists none or cannot be asked."""
    models = await list_models(client)
    if not models:
        raise ClientError("The server lists no model. Name one with --model.")
    return models[0]


async def list_models(client: httpx2.AsyncClient) -> tuple[str, ...]:
    """What the server says it serves. ClientError when it cannot be asked."""
    try:
        response = await fetch(client, "/v1/models")
    except httpx2.HTTPError as error:
        raise Unreachable(f"{client.base_url}: {why(error)}.") from error
    if response.history:
        raise ClientError(f"{client.base_url} leads on to {response.url}. Give the address that it leads to.")
    if response.status_code != 200:
        raise _refused(response)
    try:
        models = msgspec.json.decode(response.content, type=_Models)
    except msgspec.DecodeError as error:
        raise ClientError(
            "/v1/models gave no list of models: is this an OpenAI-compatible server?"
        ) from error
    return tuple(model.id for model in models.data)


async def _count(client: httpx2.AsyncClient, target: Target, prompt: str) -> int | None:
    """Tokens of a prompt by the server's own count, template included; None when it does not count."""
    content = encode(target.body(prompt, 1, stream=False))
    try:
        response, _ = await send(
            client, client.build_request("POST", target.path, content=content, headers=JSON)
        )
    except httpx2.HTTPError as error:
        raise Unreachable(f"{client.base_url}: {why(error)}.") from error
    if response.status_code != 200:
        raise _refused(response)
    try:
        whole = msgspec.json.decode(response.content, type=_Whole)
    except msgspec.DecodeError as error:
        raise ClientError(f"{target.path} did not answer with JSON.") from error
    return whole.usage.prompt_tokens if whole.usage is not None else None


async def settle_target(client: httpx2.AsyncClient, target: Target) -> Target:
    """The target without `ignore_eos` where the server refuses that extension. Refused for other reasons."""
    try:
        await _count(client, target, "Hello")
    except Refused as refusal:
        if not (target.ignore_eos and refusal.status in (400, 422)):
            raise
        target = msgspec.structs.replace(target, ignore_eos=False)
        await _count(client, target, "Hello")
    return target


async def measure_ratio(client: httpx2.AsyncClient, target: Target, load: Load) -> Ratio | None:
    """Tokens a word, from two prompts of known length; None when the server counts no tokens."""
    texts = fresh_prompts(load, Ratio(), 1, purpose=0)[0].split()
    words = (texts * (1 + MANY_WORDS // len(texts)))[:MANY_WORDS]
    few = await _count(client, target, " ".join(words[:FEW_WORDS]))
    many = await _count(client, target, " ".join(words))
    if few is None or many is None:
        return None
    per_word = (many - few) / (MANY_WORDS - FEW_WORDS)
    if per_word <= 0:
        return None
    return Ratio(per_word, few - per_word * FEW_WORDS)


async def _ask(
    client: httpx2.AsyncClient, target: Target, prompt: str, max_tokens: int, index: int = 0
) -> RequestRecord:
    """As `ask`, but Ctrl-C ends the preparation: `ask` itself makes it a record that is cut."""
    record = await ask(client, target, prompt, max_tokens, index)
    if record.cut:
        raise asyncio.CancelledError
    return record


async def warm_up(
    client: httpx2.AsyncClient,
    target: Target,
    load: Load,
    ratio: Ratio,
    on_done: Callable[[int], None] | None = None,
) -> tuple[RequestRecord, ...]:
    """`load.warmup` requests like those of the run, as many at a time as the run will have. The first goes
    alone when the prompts share a beginning: those that come with it could not find it cached.

    `on_done` is told how many are done. ClientError when all of them fail: the run would, too.
    """
    prompts = warm_prompts(load, ratio)
    done = 0
    room = asyncio.Semaphore(load.concurrency or max(1, load.warmup))

    async def one(index: int, prompt: str) -> RequestRecord:
        nonlocal done
        async with room:
            record = await _ask(client, target, prompt, load.output_tokens.longest, index)
        done += 1
        if on_done is not None:
            on_done(done)
        return record

    alone = 1 if load.shared else 0
    records = [await one(i, prompt) for i, prompt in enumerate(prompts[:alone])]
    records += await asyncio.gather(*(one(i, prompt) for i, prompt in enumerate(prompts[alone:], alone)))
    if records and all(record.error for record in records):
        raise ClientError(f"No warm-up request succeeded. The first failure: {records[0].error.rstrip('.')}.")
    return tuple(records)


async def probe_cache(
    client: httpx2.AsyncClient, target: Target, load: Load, ratio: Ratio
) -> CacheProbe | None:
    """Send three prompts twice each; None when one of the requests fails."""
    times: tuple[list[float], list[float]] = ([], [])
    cached: list[int | None] = []
    for prompt in fresh_prompts(load, ratio, PROBES, purpose=2):
        for again in (0, 1):
            record = await _ask(client, target, prompt, 2)
            ttft = latency(record).ttft
            if not record.ok or ttft is None:
                return None
            times[again].append(ttft)
        cached.append(record.num_cached_tokens)
    known = [tokens for tokens in cached if tokens is not None]
    return CacheProbe(statistics.median(times[0]), statistics.median(times[1]), max(known) if known else None)

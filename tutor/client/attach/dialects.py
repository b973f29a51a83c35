"""What each server calls its metrics.

vLLM: https://docs.vllm.ai/en/latest/usage/metrics.html (names of V1), and for those of V0 and early V1, which
come after them, https://docs.vllm.ai/en/v0.8.5/serving/metrics.html.
SGLang: https://docs.sglang.io/docs/references/production_metrics.html and its metrics collector.
llama-server: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (GET /metrics).
Of several names the first that is there counts. Counters may have `_total` at their end.
"""

from __future__ import annotations

import msgspec

from tutor.client.attach.scrape import Histogram, Scrape

Names = tuple[str, ...]


class Latency(msgspec.Struct, frozen=True):
    name: str
    meaning: str
    histograms: Names


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """`hits` and `queries` are prompt tokens; `misses` stands for queries where only those are counted.

    `accept_rate` is a gauge that stands in where drafted tokens are not counted. `engine` is the word for one
    of several engines behind the server.
    `mean_time` is a counter of seconds and one of tokens: a mean where there is no histogram.
    """

    kind: str
    name: str
    prefix: str
    running: Names
    waiting: Names
    kv_usage: Names = ()
    hits: Names = ()
    queries: Names = ()
    misses: Names = ()
    hit_rate: Names = ()
    preemptions: Names = ()
    prompt_tokens: Names = ()
    output_tokens: Names = ()
    requests: Names = ()
    drafted: Names = ()
    accepted: Names = ()
    accept_rate: Names = ()
    engine: str = "engine"
    latencies: tuple[Latency, ...] = ()
    mean_times: tuple[tuple[str, str, str, str], ...] = ()


def _latencies(prefix: str) -> tuple[Latency, ...]:
    return (
        Latency("TTFT", "arrival to first token", (f"{prefix}time_to_first_token_seconds",)),
        Latency(
            "ITL",
            "gap between tokens",
            (f"{prefix}inter_token_latency_seconds", f"{prefix}time_per_output_token_seconds"),
        ),
        Latency(
            "TPOT",
            "(E2E - TTFT)/(n - 1)",
            (f"{prefix}request_time_per_output_token_seconds",),
        ),
        Latency("E2E", "arrival to last token", (f"{prefix}e2e_request_latency_seconds",)),
        Latency(
            "queue",
            "arrival to admission",
            (
                f"{prefix}request_queue_time_seconds",
                f"{prefix}queue_time_seconds",
                f"{prefix}time_in_queue_requests",
            ),
        ),
    )


VLLM = Dialect(
    kind="vllm",
    name="vLLM",
    prefix="vllm:",
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    hits=("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    queries=("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    hit_rate=("vllm:gpu_prefix_cache_hit_rate",),
    preemptions=("vllm:num_preemptions",),
    prompt_tokens=("vllm:prompt_tokens",),
    output_tokens=("vllm:generation_tokens",),
    requests=("vllm:request_success",),
    drafted=("vllm:spec_decode_num_draft_tokens",),
    accepted=("vllm:spec_decode_num_accepted_tokens",),
    accept_rate=("vllm:spec_decode_draft_acceptance_rate",),
    latencies=_latencies("vllm:"),
)
TUTOR = msgspec.structs.replace(VLLM, kind="tutor", name="tutor serve", prefix="tutor:")
SGLANG = Dialect(
    kind="sglang",
    name="SGLang",
    prefix="sglang:",
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    kv_usage=("sglang:token_usage", "sglang:full_token_usage"),
    hits=("sglang:cached_tokens",),
    queries=("sglang:prompt_tokens",),
    hit_rate=("sglang:cache_hit_rate",),
    preemptions=("sglang:num_retracted_requests", "sglang:total_retracted_reqs"),
    prompt_tokens=("sglang:prompt_tokens",),
    output_tokens=("sglang:generation_tokens",),
    requests=("sglang:num_requests", "sglang:request_success"),
    accept_rate=("sglang:spec_accept_rate",),  # it counts no drafted tokens
    engine="dp rank",
    latencies=_latencies("sglang:"),
)
LLAMA = Dialect(
    kind="llama-server",
    name="llama-server",
    prefix="llamacpp:",
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    kv_usage=("llamacpp:kv_cache_usage_ratio",),  # gone from newer releases; /slots stands in
    hits=("llamacpp:prompt_tokens_cached",),
    misses=("llamacpp:prompt_tokens",),  # counts computed tokens only
    prompt_tokens=("llamacpp:prompt_tokens",),
    output_tokens=("llamacpp:tokens_predicted",),
    drafted=("llamacpp:spec_decode_num_draft_tokens",),
    accepted=("llamacpp:spec_decode_num_accepted_tokens",),
    mean_times=(
        ("prompt", "per prompt token", "llamacpp:prompt_seconds", "llamacpp:prompt_tokens"),
        ("decode", "per output token", "llamacpp:tokens_predicted_seconds", "llamacpp:tokens_predicted"),
    ),
)
# The tutor's own server speaks vLLM's names and some of its own, so it is looked for first.
DIALECTS = (TUTOR, VLLM, SGLANG, LLAMA)


def recognise(scrape: Scrape) -> Dialect | None:
    return next((dialect for dialect in DIALECTS if scrape.has_prefix(dialect.prefix)), None)


def counter(scrape: Scrape, names: Names) -> float | None:
    """The first of these counters or gauges that is there, summed over its labels."""
    for name in names:
        for spelled in (f"{name}_total", name):
            if spelled in scrape.sums:
                return scrape.sums[spelled]
    return None


def peak(scrape: Scrape, names: Names) -> float | None:
    """The largest of a gauge's samples: a share adds up to nothing over engines."""
    return next((scrape.peaks[name] for name in names if name in scrape.peaks), None)


def histogram(scrape: Scrape, names: Names) -> Histogram | None:
    return next((scrape.histograms[name] for name in names if name in scrape.histograms), None)

"""What the server counts: Prometheus metrics under the names that vLLM's users know, and some of our own.

Names and meanings: https://docs.vllm.ai/en/latest/usage/metrics.html (V1). All of them are measured here, by
the engine's own clock; those that start with `tutor:` are not in vLLM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from tutor.endpoint import messages as msg
from tutor.endpoint.buckets import FEW, GAPS, LATENCIES, SAMPLES, SECONDS, STEP_TOKENS, TOKENS
from tutor.endpoint.generation import Generation, Piece, Sample
from tutor.trace.events import TraceHeader, TraceRecord

REASONS = ("stop", "length", "abort")
NO_STATS = msg.Stats(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

TraceSink = Callable[[TraceHeader, list[TraceRecord]], None]


class Observer:
    """Told what happens, it keeps the metrics of one server in a registry of its own.

    `sink` is handed the trace: the header with no record each time an engine starts, then its records.
    """

    def __init__(self, model_name: str, sink: TraceSink | None = None) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # when it started, and its memory: of the HTTP side alone
        self.latest = NO_STATS
        self._sink = sink
        self._header: TraceHeader | None = None
        self._names = {"model_name": model_name, "engine": "0"}
        self._make_gauges()
        self._make_counters()
        self._make_histograms()

    # --- the metrics ------------------------------------------------------------------------------

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, list(self._names), registry=self.registry).labels(**self._names)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, list(self._names), registry=self.registry).labels(**self._names)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(name, text, list(self._names), buckets=buckets, registry=self.registry)
        return made.labels(**self._names)

    def _make_gauges(self) -> None:
        self._running = self._gauge("vllm:num_requests_running", "Requests in the running batch.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Requests that wait to be admitted.")
        self._usage = self._gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all.")
        self._up = self._gauge("tutor:engine_up", "1 while the engine process takes requests.")
        self._blocks = self._gauge("tutor:kv_blocks_used", "KV blocks that requests hold.")
        self._tasks = self._gauge("tutor:server_tasks", "Tasks of the HTTP side, the scrape's own included.")
        self._cache_info = Gauge(
            "vllm:cache_config_info", "The cache's settings, as labels.",
            ["block_size", "num_gpu_blocks", "enable_prefix_caching", "cache_dtype", "engine"],
            registry=self.registry,
        )  # fmt: skip

    def _make_counters(self) -> None:
        counter = self._counter
        self._queries = counter("vllm:prefix_cache_queries", "Tokens looked up in the prefix cache.")
        self._hits = counter("vllm:prefix_cache_hits", "Tokens of these that were found.")
        self._preemptions = counter("vllm:num_preemptions", "Times a request lost its blocks.")
        self._prompt = counter("vllm:prompt_tokens", "Prompt tokens of admitted requests.")
        self._generated = counter("vllm:generation_tokens", "Tokens generated.")
        self._drafts = counter("vllm:spec_decode_num_drafts", "Drafts verified.")
        self._drafted = counter("vllm:spec_decode_num_draft_tokens", "Tokens drafted.")
        self._accepted = counter("vllm:spec_decode_num_accepted_tokens", "Drafted tokens accepted.")
        self._success = Counter(
            "vllm:request_success", "Requests that ended, by reason.",
            [*self._names, "finished_reason"], registry=self.registry,
        )  # fmt: skip
        for reason in REASONS:  # a rate over a counter needs its zero
            self._success.labels(**self._names, finished_reason=reason)
        self._overloads = counter("tutor:requests_rejected", "Requests answered by 429.")
        self._deaths = counter("tutor:engine_deaths", "Times the engine process ended unasked.")
        self._steps = counter("tutor:engine_steps", "Steps of the engine.")

    def _make_histograms(self) -> None:
        make = self._histogram
        self._ttft = make("vllm:time_to_first_token_seconds", "Arrival to first token.", SECONDS)
        self._itl = make("vllm:inter_token_latency_seconds", "Gap between tokens.", GAPS)
        self._tpot = make("vllm:request_time_per_output_token_seconds", "(E2E - TTFT) / (n - 1).", GAPS)
        self._e2e = make("vllm:e2e_request_latency_seconds", "Arrival to last token.", LATENCIES)
        self._queue = make("vllm:request_queue_time_seconds", "Arrival to admission.", LATENCIES)
        self._prefill = make("vllm:request_prefill_time_seconds", "Admission to first token.", LATENCIES)
        self._decode = make("vllm:request_decode_time_seconds", "First to last token.", LATENCIES)
        self._inference = make("vllm:request_inference_time_seconds", "Admission to last token.", LATENCIES)
        self._prompts = make("vllm:request_prompt_tokens", "Prompt tokens of a request.", TOKENS)
        self._outputs = make("vllm:request_generation_tokens", "Generated tokens of a request.", TOKENS)
        self._max_tokens = make("vllm:request_params_max_tokens", "max_tokens of a request.", TOKENS)
        self._n = make("vllm:request_params_n", "n of a request.", SAMPLES)
        self._per_step = make("vllm:iteration_tokens_total", "Tokens that a step computed.", STEP_TOKENS)
        self._durations = make("tutor:step_duration_seconds", "Duration of a step.", SECONDS)
        self._abort_steps = make(
            "tutor:abort_steps", "Steps begun between a client's leaving and its blocks' being free.", FEW
        )
        self._abort_time = make(
            "tutor:abort_seconds", "Time between a client's leaving and its blocks' being free.", SECONDS
        )

    def scraped(self) -> None:
        """Somebody is about to read the metrics. Must be called in the server's loop."""
        self._tasks.set(len(asyncio.all_tasks()))

    # --- what happens -----------------------------------------------------------------------------

    def ready(self, ready: msg.Ready) -> None:
        self.latest = NO_STATS
        self._up.set(1)
        self._header = ready.header
        header = ready.header
        self._cache_info.labels(
            str(header.block_size), str(header.num_blocks), str(header.knobs.get("prefix_caching", "")),
            str(header.knobs.get("kv_type", "")), "0",
        ).set(1)  # fmt: skip
        if self._sink is not None:
            self._sink(header, [])

    def engine_gone(self) -> None:
        self._up.set(0)
        self._show(NO_STATS)
        self.latest = NO_STATS

    def died(self) -> None:
        self._deaths.inc()

    def rejected(self) -> None:
        self._overloads.inc()

    def aborted(self, generation: Generation) -> None:
        for sample in generation.samples:
            if not sample.finish_reason:
                self._success.labels(**self._names, finished_reason="abort").inc()

    def freed(self, aborted: msg.Aborted) -> None:
        self._abort_steps.observe(aborted.num_steps)
        self._abort_time.observe(aborted.at - aborted.asked_at)
        self._show(aborted.stats)

    def recorded(self, records: list[TraceRecord]) -> None:
        if self._sink is not None and self._header is not None:
            self._sink(self._header, records)

    def stepped(self, step: msg.Stepped) -> None:
        self._steps.inc()
        self._per_step.observe(step.num_tokens)
        self._durations.observe(step.duration)
        self._show(step.stats)

    def _show(self, stats: msg.Stats) -> None:
        before, self.latest = self.latest, stats
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        self._blocks.set(stats.num_used_blocks)
        self._usage.set(stats.num_used_blocks / stats.num_blocks if stats.num_blocks else 0.0)
        for counter, old, new in (
            (self._queries, before.prefix_queries, stats.prefix_queries),
            (self._hits, before.prefix_hits, stats.prefix_hits),
            (self._preemptions, before.num_preemptions, stats.num_preemptions),
            (self._drafts, before.num_drafts, stats.num_drafts),
            (self._drafted, before.num_drafted, stats.num_drafted),
            (self._accepted, before.num_accepted, stats.num_accepted),
        ):
            counter.inc(max(0, new - old))

    def took(self, generation: Generation, piece: Piece, at: float) -> None:
        """A step brought something for a sample."""
        sample, output = piece.sample, piece.output
        self._generated.inc(output.num_tokens)
        if output.admitted is not None and sample.admitted_at == output.admitted.at:
            self._prompt.inc(sample.num_prompt_tokens)
            self._queue.observe(max(0.0, sample.admitted_at - generation.arrived_at))
        if output.num_tokens and sample.first_token_at == at:
            self._ttft.observe(at - generation.arrived_at)
        if piece.since:
            self._itl.observe(piece.since)
        if output.finish_reason:
            self._finished(generation, sample)

    def _finished(self, generation: Generation, sample: Sample) -> None:
        self._success.labels(**self._names, finished_reason=sample.finish_reason).inc()
        self._e2e.observe(sample.last_token_at - generation.arrived_at)
        self._prefill.observe(sample.first_token_at - sample.admitted_at)
        decode = sample.last_token_at - sample.first_token_at
        self._decode.observe(decode)
        self._inference.observe(sample.last_token_at - sample.admitted_at)
        if sample.num_tokens > 1:
            self._tpot.observe(decode / (sample.num_tokens - 1))
        self._prompts.observe(sample.num_prompt_tokens)
        self._outputs.observe(sample.num_tokens)
        self._max_tokens.observe(sample.max_tokens)
        self._n.observe(generation.submits[0].n)

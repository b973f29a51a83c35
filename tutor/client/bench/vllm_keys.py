"""The result as JSON with the keys of `vllm bench serve` (vllm/benchmarks/serve.py), so that files compare.

What that tool does not have stands under "tutor". Known differences are in docs/benchmarking.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from tutor.client.bench.confidence import Distribution, Interval
from tutor.client.bench.findings import findings
from tutor.client.bench.record import latency
from tutor.client.bench.result import Result, in_flight_by_second, late_p99, seen_by_second, tokens_by_second
from tutor.metrics.goodput import Targets

Json = dict[str, object]
TPOT = "(E2E - TTFT) / (n - 1), per request, as in vllm bench serve"
PER_TOKEN = "E2E / n, per request: what GuideLLM calls TPOT"


def as_json(result: Result, *, details: bool = False, date: datetime | None = None) -> Json:
    """Everything but the texts; with `details` also the lists of one entry a request."""
    load, target, rates = result.setup.load, result.setup.target, result.rates
    answer: Json = {
        "date": (date or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "openai-chat" if target.endpoint == "chat" else "openai",
        "backend": "openai-chat" if target.endpoint == "chat" else "openai",
        "label": None,
        "model_id": target.model,
        "tokenizer_id": None,
        "num_prompts": load.requests,
        "request_rate": load.rate if load.rate is not None else "inf",
        "burstiness": {"poisson": 1.0, "constant": "inf"}.get(load.arrivals, 1.0),
        "max_concurrency": load.concurrency,
        "duration": result.run.duration,
        "completed": result.completed,
        "failed": result.failed,
        "total_input_tokens": result.num_input_tokens,
        "total_output_tokens": result.num_output_tokens,
        "request_throughput": rates.requests,
        "request_goodput": rates.goodput,
        "output_throughput": rates.output_tokens,
        "total_token_throughput": rates.all_tokens,
        "max_output_tokens_per_s": rates.most_output_tokens,
        "max_concurrent_requests": max(seen_by_second(result.run), default=0),
    }
    latencies = {"ttft": result.ttft, "tpot": result.tpot, "itl": result.itl, "e2el": result.e2e}
    if load.rate is not None and load.concurrency is not None:
        latencies |= {
            "client_queue_time": result.queue_time,
            "e2el_including_client_queue": result.planned_e2e,
        }
    for name, spread in latencies.items():
        answer |= _figures(name, spread, result.setup.percentiles)
    if details:
        answer |= _lists(result)
    answer["tutor"] = _own(result)
    return answer


def _figures(name: str, spread: Distribution | None, asked: Sequence[float]) -> Json:
    """vLLM writes zeros where no request has the figure; we write null."""
    if spread is None:
        words = ("mean", "median", "std", *(f"p{_word(q)}" for q in asked))
        return {f"{word}_{name}_ms": None for word in words}
    return {
        f"mean_{name}_ms": spread.mean.value * 1e3,
        f"median_{name}_ms": spread.percentiles[50.0].value * 1e3,
        f"std_{name}_ms": spread.std * 1e3,
        **{f"p{_word(q)}_{name}_ms": spread.percentiles[q].value * 1e3 for q in asked},
    }


def _word(q: float) -> str:
    return f"{q:.12g}"


def _lists(result: Result) -> Json:
    """One entry a request that finished or failed; seconds."""
    records = [record for record in result.run.records if not record.cut]
    measured = [latency(record) for record in records]
    return {
        "input_lens": [record.num_input_tokens for record in records],
        "output_lens": [record.num_output_tokens if record.ok else 0 for record in records],
        "ttfts": [x.ttft or 0.0 for x in measured],
        "itls": [list(x.itl) for x in measured],
        "latencies": [x.e2e or 0.0 for x in measured],
        "start_times": [record.sent_at for record in records],
        "queue_times": [record.lateness for record in records],
        "generated_texts": [record.text for record in records],
        "errors": [record.error for record in records],
    }


def _interval(x: Interval) -> Json:
    low, high = (None if bound is None else bound * 1e3 for bound in (x.low, x.high))
    return {"value": x.value * 1e3, "low": low, "high": high}


def _confidence(spread: Distribution | None) -> Json | None:
    if spread is None:
        return None
    found: Json = {"n": spread.count, "mean_ms": _interval(spread.mean)}
    return found | {f"p{_word(q)}_ms": _interval(x) for q, x in spread.percentiles.items()}


def _targets(targets: Targets | None) -> Json | None:
    """Milliseconds, as `--slo` takes them; null where there is no limit."""
    if targets is None:
        return None
    limits = {"ttft_ms": targets.ttft, "tpot_ms": targets.tpot, "e2el_ms": targets.e2e}
    return {name: limit * 1e3 if math.isfinite(limit) else None for name, limit in limits.items()}


def _own(result: Result) -> Json:
    setup, run = result.setup, result.run
    return {
        "provenance": "measured by this client",
        "url": setup.url,
        "interrupted": run.interrupted,
        "cut": result.num_cut,
        "never_sent": run.planned - len(run.records),
        "load": msgspec.to_builtins(setup.load),
        "ignore_eos": setup.target.ignore_eos,
        "definitions": {
            "ttft": "sending to first text; waiting for a slot included",
            "tpot": TPOT,
            "e2e_per_token": PER_TOKEN,
            "itl": "gaps between chunks with text, of all requests together",
            "e2el": "sending to the chunk with the finish reason",
            "percentiles": "nearest-rank",
            "intervals": "95 %; percentiles by order statistics, means by Student's t, requests taken as "
            "independent; null: so few requests have no bound on that side",
        },
        "confidence": {
            "ttft": _confidence(result.ttft),
            "tpot": _confidence(result.tpot),
            "e2e_per_token": _confidence(result.e2e_per_token),
            "itl": _confidence(result.itl),
            "e2el": _confidence(result.e2e),
            "ttft_from_due_time": _confidence(result.planned_ttft),
            "e2el_from_due_time": _confidence(result.planned_e2e),
        },
        "goodput_targets": _targets(setup.targets),
        "most_in_flight": run.most_in_flight,
        "average_concurrency": result.rates.concurrency,
        "cached_prompt_tokens": result.cache.cached,
        "cache_probe": msgspec.to_builtins(setup.probe),
        "client": msgspec.to_builtins(run.client) | {"late_p99": late_p99(result)},
        "coalesced_chunk_share": result.coalesced_share,
        "tokens_per_chunk": result.tokens_per_chunk,
        "output_tokens_by_second": tokens_by_second(run),
        "in_flight_by_second": in_flight_by_second(run),
        "findings": [msgspec.to_builtins(finding) for finding in findings(result)],
    }

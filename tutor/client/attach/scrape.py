"""Prometheus text into numbers, whatever a server leaves out or garbles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

SGLANG_OLD, SGLANG_NEW = "sglang:", "sglang_"  # releases differ in this prefix only
RANKS = ("pp_rank", "tp_rank", "moe_ep_rank")

Engine = tuple[str, str]  # model, number


class Histogram(msgspec.Struct, frozen=True):
    """Observations by bucket: `bounds` are upper bounds, the last one infinite; `counts` are cumulative."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        return self.counts[-1] if self.counts else 0.0

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count > 0 else None


class Scrape(msgspec.Struct, frozen=True):
    """One answer of `/metrics`. Values of a name add up over its labels; `peaks` has their largest.

    `engines` has the values of each engine behind the server, by model and by its number (vLLM's label
    `engine`, SGLang's `dp_rank`; "" where there is none). `unreadable` counts lines that are no metric.
    `cut`: the text ends within a line, so the server or the way to it broke off.
    """

    sums: Mapping[str, float]
    peaks: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    engines: Mapping[Engine, Mapping[str, float]]
    unreadable: int = 0
    cut: bool = False

    def has_prefix(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.sums) or any(
            name.startswith(prefix) for name in self.histograms
        )


def _read(text: str) -> tuple[list[Sample], int]:
    """All samples. Where the text as a whole cannot be read, line by line, so that one bad line costs one."""
    try:
        return [s for family in text_string_to_metric_families(text) for s in family.samples], 0
    except ValueError:
        pass
    samples: list[Sample] = []
    unreadable = 0
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        try:
            samples += [s for family in text_string_to_metric_families(line + "\n") for s in family.samples]
        except ValueError:
            unreadable += 1
    return samples, unreadable


def _named(sample: Sample) -> Sample:
    """The sample with SGLang's older prefix, which is the one that the dialect knows."""
    if not sample.name.startswith(SGLANG_NEW):
        return sample
    return sample._replace(name=SGLANG_OLD + sample.name.removeprefix(SGLANG_NEW))


def _once(samples: Iterable[Sample]) -> list[Sample]:
    """SGLang can tell the same requests several times; each is kept once.

    Every rank of a tensor-, pipeline- or expert-parallel group may report them (the lowest one is kept; with
    DP attention that is not rank 0), and with priority scheduling each priority does beside the total, whose
    label is empty. Source: sglang/srt/observability/metrics_collector.py.
    """
    kept: list[Sample] = []
    lowest: dict[tuple[str, frozenset[tuple[str, str]]], tuple[tuple[int, ...], Sample]] = {}
    for sample in samples:
        if not sample.name.startswith(SGLANG_OLD):
            kept.append(sample)
            continue
        if sample.labels.get("priority"):
            continue
        others = frozenset(pair for pair in sample.labels.items() if pair[0] not in RANKS)
        rank = tuple(_rank(sample.labels.get(name, "")) for name in RANKS)
        key = (sample.name, others)
        if key not in lowest or rank < lowest[key][0]:
            lowest[key] = (rank, sample)
    return kept + [sample for _, sample in lowest.values()]


def _rank(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _engine(labels: Mapping[str, str]) -> Engine:
    return labels.get("model_name", ""), labels.get("engine") or labels.get("dp_rank", "")


def parse(text: str) -> Scrape:
    """Numbers that are not finite are left out: llama-server writes nan for a rate of nothing."""
    whole, _, rest = text.rpartition("\n")  # the format ends every line with a line feed
    samples, unreadable = _read(whole + "\n")
    sums: dict[str, float] = {}
    peaks: dict[str, float] = {}
    engines: dict[Engine, dict[str, float]] = {}
    buckets: dict[str, dict[float, float]] = {}
    for sample in _once(map(_named, samples)):
        name, value = sample.name, sample.value
        if not math.isfinite(value):
            continue
        if name.endswith("_bucket") and "le" in sample.labels:
            try:
                bound = float(sample.labels["le"])
            except ValueError:
                unreadable += 1
                continue
            of_name = buckets.setdefault(name.removesuffix("_bucket"), {})
            of_name[bound] = of_name.get(bound, 0.0) + value
            continue
        sums[name] = sums.get(name, 0.0) + value
        peaks[name] = max(peaks.get(name, -math.inf), value)
        of_engine = engines.setdefault(_engine(sample.labels), {})
        of_engine[name] = of_engine.get(name, 0.0) + value
    return Scrape(sums, peaks, _histograms(buckets, sums), engines, unreadable, bool(rest.strip()))


def _histograms(
    buckets: Mapping[str, Mapping[float, float]], sums: Mapping[str, float]
) -> dict[str, Histogram]:
    """Those that are whole: without the last bucket it is not known how much was observed."""
    histograms = {}
    for name, counts in buckets.items():
        ordered = sorted(counts.items())
        if math.isinf(ordered[-1][0]):
            bounds, cumulative = zip(*ordered, strict=True)
            histograms[name] = Histogram(bounds, cumulative, sums.get(f"{name}_sum", 0.0))
    return histograms

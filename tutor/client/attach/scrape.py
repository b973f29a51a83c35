"""Prometheus text into numbers, whatever a server leaves out or garbles."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

SGLANG_OLD, SGLANG_NEW = "sglang:", "sglang_"  # releases differ in this prefix only


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

    `labels` has the labels of the last sample of each name. `unreadable` counts lines that are no metric.
    """

    sums: Mapping[str, float]
    peaks: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    labels: Mapping[str, Mapping[str, str]]
    unreadable: int = 0

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


def _counts_once(labels: Mapping[str, str]) -> bool:
    """SGLang can report from every rank of a tensor- or pipeline-parallel group: the same requests again."""
    return all(labels.get(rank, "0") in ("", "0") for rank in ("tp_rank", "pp_rank"))


def parse(text: str) -> Scrape:
    """Numbers that are not finite are left out: llama-server writes nan for a rate of nothing."""
    samples, unreadable = _read(text)
    sums: dict[str, float] = {}
    peaks: dict[str, float] = {}
    labels: dict[str, Mapping[str, str]] = {}
    buckets: dict[str, dict[float, float]] = {}
    for sample in samples:
        name = SGLANG_OLD + sample.name[7:] if sample.name.startswith(SGLANG_NEW) else sample.name
        if not math.isfinite(sample.value) or not _counts_once(sample.labels):
            continue
        labels[name] = sample.labels
        if name.endswith("_bucket") and "le" in sample.labels:
            try:
                bound = float(sample.labels["le"])
            except ValueError:
                unreadable += 1
                continue
            of_name = buckets.setdefault(name.removesuffix("_bucket"), {})
            of_name[bound] = of_name.get(bound, 0.0) + sample.value
            continue
        sums[name] = sums.get(name, 0.0) + sample.value
        peaks[name] = max(peaks.get(name, -math.inf), sample.value)
    histograms = {}
    for name, counts in buckets.items():
        ordered = sorted(counts.items())
        histograms[name] = Histogram(
            tuple(bound for bound, _ in ordered),
            tuple(count for _, count in ordered),
            sums.get(f"{name}_sum", 0.0),
        )
    return Scrape(sums, peaks, histograms, labels, unreadable)

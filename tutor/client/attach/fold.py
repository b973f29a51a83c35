"""From scrapes over time to a view: rates and percentiles over a window, counters that start again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from tutor.client.attach.dialects import Dialect, Names, counter, histogram, peak
from tutor.client.attach.quantile import gained, last_bound, quantile
from tutor.client.attach.scrape import Engine, Histogram, Scrape
from tutor.client.attach.slots import usage_of
from tutor.client.attach.views import (
    EngineView,
    LatencyView,
    PercentileView,
    PointView,
    ServerView,
    SlotView,
)

WINDOW = 60.0
PERCENTILES = (50.0, 95.0, 99.0)
POINTS = 120

START_TIMES = ("process_start_time_seconds",)


class _Look(msgspec.Struct, frozen=True):
    at: float
    scrape: Scrape


class Fold:
    """Takes scrapes of one server in order. A restart begins the window anew."""

    def __init__(self, dialect: Dialect, window: float = WINDOW) -> None:
        self.dialect = dialect
        self.num_restarts = 0
        self._window = window
        self._looks: deque[_Look] = deque()
        self._points: deque[PointView] = deque(maxlen=POINTS)

    def take(self, scrape: Scrape, at: float) -> None:
        """`at`: seconds of a clock that never goes back."""
        if self._looks and self._restarted(self._looks[-1].scrape, scrape):
            self.num_restarts += 1
            self._looks.clear()
        self._looks.append(_Look(at, scrape))
        # The look that is just older than the window stays: the window begins with it.
        while len(self._looks) > 2 and self._looks[1].at <= at - self._window:
            self._looks.popleft()

    def _restarted(self, before: Scrape, now: Scrape) -> bool:
        started, starts = counter(before, START_TIMES), counter(now, START_TIMES)
        if started is not None and starts is not None and starts != started:
            return True
        d = self.dialect
        for names in (d.output_tokens, d.prompt_tokens, d.requests, d.queries, d.preemptions):
            old, new = counter(before, names), counter(now, names)
            if old is not None and new is not None and new < old:
                return True
        return False

    def view(self, url: str, slots: tuple[SlotView, ...] = ()) -> ServerView:
        """Everything that the scrapes so far tell. At least one was taken."""
        d, now = self.dialect, self._looks[-1].scrape
        kv_usage, kv_note = peak(now, d.kv_usage), ""
        if kv_usage is None and slots:
            kv_usage, kv_note = usage_of(slots), "of all slots' contexts, from /slots"
        running, waiting = counter(now, d.running), counter(now, d.waiting)
        output_rate = self._rate(d.output_tokens)
        at = self._looks[-1].at
        if not self._points or self._points[-1].at != at:
            self._points.append(PointView(at, running, waiting, kv_usage, self._newest_rate(d.output_tokens)))
        view = ServerView(
            url=url,
            kind=d.kind,
            name=d.name,
            model=_model(d, now),
            status="ok",
            num_restarts=self.num_restarts,
            running=running,
            waiting=waiting,
            window=self._span or None,
            capacity=len(slots) or None,
            kv_usage=kv_usage,
            kv_note=kv_note,
            hit_rate=self._hit_rate(recent=True),
            hit_rate_before=self._hit_rate(recent=False),
            preemptions=counter(now, d.preemptions),
            preemption_rate=self._rate(d.preemptions),
            input_rate=self._rate(d.prompt_tokens),
            output_rate=output_rate,
            request_rate=self._rate(d.requests),
            acceptance=self._acceptance(),
            latencies=self._latencies(),
            slots=slots,
            engines=_engines(d, now),
            points=tuple(self._points),
            unreadable=now.unreadable,
        )
        return msgspec.structs.replace(view, missing=self._missing(view, now))

    def _missing(self, view: ServerView, now: Scrape) -> tuple[str, ...]:
        d = self.dialect
        there = {
            "running": view.running is not None,
            "waiting": view.waiting is not None,
            "KV usage": view.kv_usage is not None,
            "hit rate": counter(now, d.hits) is not None or peak(now, d.hit_rate) is not None,
            "preemptions": view.preemptions is not None,
            "output tokens": counter(now, d.output_tokens) is not None,
            "latency histograms": any(histogram(now, x.histograms) for x in d.latencies),
        }
        return tuple(name for name, known in there.items() if not known)

    # --- rates ----------------------------------------------------------------------------------

    @property
    def _span(self) -> float:
        return self._looks[-1].at - self._looks[0].at

    def _gain(self, names: Names) -> float | None:
        """What a counter gained over the window; None with a single look."""
        new, old = counter(self._looks[-1].scrape, names), counter(self._looks[0].scrape, names)
        return None if new is None or old is None or self._span <= 0 else max(0.0, new - old)

    def _rate(self, names: Names) -> float | None:
        gain = self._gain(names)
        return None if gain is None else gain / self._span

    def _newest_rate(self, names: Names) -> float | None:
        """Between the last two looks, for the curve."""
        if len(self._looks) < 2:
            return None
        before, now = self._looks[-2], self._looks[-1]
        old, new = counter(before.scrape, names), counter(now.scrape, names)
        if old is None or new is None or now.at <= before.at:
            return None
        return max(0.0, new - old) / (now.at - before.at)

    def _amount(self, names: Names, recent: bool) -> float | None:
        return self._gain(names) if recent else counter(self._looks[-1].scrape, names)

    def _hit_rate(self, *, recent: bool) -> float | None:
        d = self.dialect
        hits, queries = self._amount(d.hits, recent), self._amount(d.queries, recent)
        misses = self._amount(d.misses, recent)
        if queries is None and hits is not None and misses is not None:
            queries = hits + misses
        if hits is not None and queries:
            return hits / queries
        if hits is not None and queries is not None:
            return None  # known, and nothing was asked in the window
        return None if recent else peak(self._looks[-1].scrape, d.hit_rate)

    def _acceptance(self) -> float | None:
        accepted, drafted = self._gain(self.dialect.accepted), self._gain(self.dialect.drafted)
        if accepted is not None and drafted:
            return accepted / drafted
        return (
            peak(self._looks[-1].scrape, self.dialect.accept_rate) or None
        )  # a gauge of 0: nothing is drafted

    # --- latencies ------------------------------------------------------------------------------

    def _latencies(self) -> tuple[LatencyView, ...]:
        found: list[LatencyView] = []
        now, first = self._looks[-1].scrape, self._looks[0].scrape
        for latency in self.dialect.latencies:
            whole = histogram(now, latency.histograms)
            if whole is None:
                continue
            before = histogram(first, latency.histograms)
            recent = gained(whole, before) if self._span > 0 else None
            if recent is not None and recent.count > 0:
                found.append(_latency(latency.name, latency.meaning, recent, self._span))
            else:
                found.append(_latency(latency.name, latency.meaning, whole, None))
        for name, meaning, seconds, tokens in self.dialect.mean_times:
            found += self._mean(name, meaning, (seconds,), (tokens,))
        return tuple(found)

    def _mean(self, name: str, meaning: str, seconds: Names, tokens: Names) -> list[LatencyView]:
        """A mean from two counters: over the window if something happened in it, else since the start."""
        window: float | None = self._span
        time, count = self._gain(seconds), self._gain(tokens)
        if not count:
            window = None
            now = self._looks[-1].scrape
            time, count = counter(now, seconds), counter(now, tokens)
        if time is None or count is None:
            return []
        return [LatencyView(name, meaning, int(count), time / count if count else None, (), window)]


def _latency(name: str, meaning: str, histogram: Histogram, window: float | None) -> LatencyView:
    percentiles = []
    for q in PERCENTILES:
        value = quantile(histogram, q)
        if value is not None:
            above = value == float("inf")
            percentiles.append(PercentileView(q, last_bound(histogram) if above else value, above))
    return LatencyView(name, meaning, int(histogram.count), histogram.mean, tuple(percentiles), window)


def _keys(d: Dialect, scrape: Scrape) -> list[Engine]:
    """The engines that tell what they run, those of a model together and in order of their numbers."""
    told = (key for key, values in scrape.engines.items() if any(name in values for name in d.running))
    return sorted(told, key=lambda key: (key[0], len(key[1]), key[1]))


def _engines(d: Dialect, scrape: Scrape) -> tuple[EngineView, ...]:
    keys = _keys(d, scrape)
    if len(keys) < 2:
        return ()
    several_models = len({model for model, _ in keys}) > 1
    views = []
    for model, number in keys:
        values = scrape.engines[model, number]
        names = [model.rsplit("/", 1)[-1]] if several_models else []
        names += [f"{d.engine} {number}"] if number else []
        running, waiting, usage = (_first(values, x) for x in (d.running, d.waiting, d.kv_usage))
        views.append(EngineView(" ".join(names), running, waiting, usage))
    return tuple(views)


def _first(values: Mapping[str, float], names: Names) -> float | None:
    return next((values[name] for name in names if name in values), None)


def _model(d: Dialect, scrape: Scrape) -> str:
    """The `model_name` of the engines, or how many there are."""
    models = {model for model, _ in _keys(d, scrape)}
    return f"{len(models)} models" if len(models) > 1 else "".join(models)

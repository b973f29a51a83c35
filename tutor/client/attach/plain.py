"""A server's view as plain text: one block a poll, readable by a screen reader."""

from __future__ import annotations

from tutor.client.attach.views import EngineView, LatencyView, ServerView


def share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Per second; unknown before the second poll. Three digits or more need no decimal."""
    if not value:
        return "unknown" if value is None else "0"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:,.1f}" if value >= 9.995 else f"{value:.2f}"


def time_of(seconds: float) -> str:
    """Three digits with their unit."""
    if seconds < 1:
        ms = seconds * 1e3
        return f"{ms:.2f} ms" if ms < 10 else f"{ms:.1f} ms" if ms < 100 else f"{ms:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def window_of(latency: LatencyView) -> str:
    return "since its start" if latency.window is None else f"last {latency.window:.0f} s"


def heading(view: ServerView) -> str:
    """What it is and how fresh the figures are."""
    name = " ".join(part for part in (view.name or "no figures yet", view.version) if part)
    model = f", {view.model.rsplit('/', 1)[-1]}" if view.model else ""
    restarts = f", restarted {view.num_restarts} times" if view.num_restarts > 1 else ""
    restarts = ", restarted once" if view.num_restarts == 1 else restarts
    old = f", figures {view.age:.0f} s old" if view.status == "silent" else ""
    return f"{name}{model} at {view.url}{restarts}{old}"


def plain(view: ServerView) -> str:
    lines = [heading(view)]
    if view.problem:
        lines.append(view.problem)
    if view.status == "starting":
        return "\n".join(lines)
    slots = f" of {view.capacity}{' slots' if view.slots else ' at most'}" if view.capacity else ""
    lines.append(f"requests: {number(view.running)} running{slots}, {number(view.waiting)} waiting")
    if view.status == "no metrics":
        return "\n".join([*lines, *_slots(view)])
    kv = f" ({view.kv_note})" if view.kv_note else ""
    kv = " of the fullest engine" if view.engines else kv
    lines.append(f"KV cache: {share(view.kv_usage)} in use{kv}")
    lines.append(f"prefix cache: {_hits(view)}, {share(view.hit_rate_before)} since its start")
    lines.append(f"preemptions: {number(view.preemptions)} since its start")
    lines.append(
        f"tokens a second: {rate(view.input_rate)} in, {rate(view.output_rate)} out; "
        f"requests a second: {rate(view.request_rate)}"
    )
    if view.acceptance is not None:
        lines.append(f"drafted tokens accepted: {share(view.acceptance)}")
    lines += [_latency(latency) for latency in view.latencies]
    lines += [_engine(engine) for engine in view.engines]
    lines += _slots(view)
    if view.missing:
        lines.append(f"not reported by this server: {', '.join(view.missing)}")
    if view.unreadable:
        lines.append(f"lines of /metrics that are no metric: {view.unreadable}")
    return "\n".join(lines)


def _hits(view: ServerView) -> str:
    lately = f"in the last {view.window:.0f} s" if view.window else "lately"
    if view.hit_rate is None and view.hit_rate_before is not None:
        return f"nothing looked up {lately}" if view.window else "not known before the second poll"
    return f"{share(view.hit_rate)} of prompt tokens hit {lately}"


def _engine(engine: EngineView) -> str:
    counts = f"{number(engine.running)} running, {number(engine.waiting)} waiting"
    return f"{engine.name}: {counts}, KV cache {share(engine.kv_usage)}"


def _latency(latency: LatencyView) -> str:
    head = f"{latency.name} ({latency.meaning})"
    if not latency.count or latency.mean is None:
        return f"{head}: nothing measured yet"
    parts = [f"mean {time_of(latency.mean)}"]
    parts += [f"P{p.q:g} {'above ' if p.above else ''}{time_of(p.value)}" for p in latency.percentiles]
    kind = ", percentiles estimated from buckets" if latency.percentiles else ", from counters"
    return f"{head}: {', '.join(parts)} (n {latency.count:,}, {window_of(latency)}{kind})"


def _slots(view: ServerView) -> list[str]:
    lines = []
    for slot in view.slots:
        if slot.busy:
            lines.append(
                f"slot {slot.slot}: prompt {slot.num_prompt} ({slot.num_cached} cached), "
                f"{slot.num_decoded} generated, {slot.num_left} to go, of {slot.num_context}"
            )
        else:
            lines.append(f"slot {slot.slot}: idle")
    return lines

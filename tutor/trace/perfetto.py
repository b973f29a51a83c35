"""A trace in the Chrome trace event format, to be opened in Perfetto.

Format: "Trace Event Format", the Chrome project's document (complete events `X`, counters `C`), microseconds.
"""

from __future__ import annotations

import msgspec

from tutor.trace import events as ev
from tutor.trace.store import TraceStore

_ENGINE = 1
_MICRO = 1_000_000.0


def to_perfetto(store: TraceStore) -> bytes:
    """JSON bytes: one track a slot with its prefill and decode spans, and counters of the queues."""
    out: list[dict[str, object]] = []
    labels: dict[str, str] = {}
    pending: tuple[float, ev.StepScheduled] | None = None
    for record in store.records:
        match record.event:
            case ev.RequestArrived(request_id, label):
                labels[request_id] = label
                out.append(_instant(record.ts, f"{label} arrived"))
            case ev.RequestPreempted(request_id):
                out.append(_instant(record.ts, f"{labels[request_id]} preempted"))
            case ev.StepScheduled() as step:
                pending = (record.ts, step)
                out.append(
                    _counter(
                        record.ts, "requests", {"running": step.num_running, "waiting": step.num_waiting}
                    )
                )
            case ev.StepExecuted(duration, num_tokens) if pending is not None:
                out += [_span(pending[0], duration, share, labels) for share in pending[1].scheduled]
                out.append(_counter(record.ts, "tokens", {"scheduled": num_tokens}))
            case _:
                pass
    return msgspec.json.encode({"traceEvents": out, "displayTimeUnit": "ms"})


def _span(ts: float, duration: float, share: ev.ScheduledTokens, labels: dict[str, str]) -> dict[str, object]:
    return {
        "ph": "X", "pid": _ENGINE, "tid": share.slot, "ts": ts * _MICRO, "dur": duration * _MICRO,
        "name": f"{labels[share.request_id]} {share.phase}",
        "args": {"tokens": share.num_tokens, "start": share.start, "why": share.reason},
    }  # fmt: skip


def _instant(ts: float, name: str) -> dict[str, object]:
    return {"ph": "i", "pid": _ENGINE, "tid": 0, "ts": ts * _MICRO, "name": name, "s": "p"}


def _counter(ts: float, name: str, values: dict[str, int]) -> dict[str, object]:
    return {"ph": "C", "pid": _ENGINE, "ts": ts * _MICRO, "name": name, "args": values}

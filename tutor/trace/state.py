"""The fold over a whole trace: the serving picture plus what the other labs show."""

from __future__ import annotations

from functools import singledispatchmethod

import msgspec

from tutor.trace import events as ev
from tutor.trace import views
from tutor.trace.serving_state import ServingState


class LabState:
    """Apply records in order; `view()` gives the frozen picture at that point."""

    def __init__(self, header: ev.TraceHeader) -> None:
        self._header = header
        self._serving = ServingState(header)
        self._step = 0
        self._ts = 0.0
        self._stages: list[views.StageView] = []
        self._tokens: list[views.TokensView] = []
        self._merges: list[views.MergeView] = []
        self._logits: list[ev.LogitsComputed] = []
        self._layers: list[ev.LayerComputed] = []
        self._tensors: list[views.TensorView] = []
        self._lanes: dict[str, views.LaneView] = {}
        self._buffers: list[views.BufferView] = []
        self._passes: list[ev.PassRun] = []
        self._frames: list[ev.FrameWritten] = []
        self._timings: list[ev.TimingsRead] = []
        self._attention: list[ev.AttentionRead] = []
        self._shapes: list[ev.DistributionShaped] = []
        self._draws: ev.TokensDrawn | None = None
        self._streams: list[ev.StreamGrew] = []
        self._compared: ev.TablesCompared | None = None
        self._timed: list[ev.TokenTimed] = []
        self._fillings: dict[str, ev.CacheFilled] = {}
        self._note = ""

    def apply(self, record: ev.TraceRecord) -> None:
        self._step = record.step
        self._ts = record.ts
        self._serving.apply(record)
        self._on(record.event)

    @singledispatchmethod
    def _on(self, event: object) -> None:
        """Serving events are folded by `ServingState`."""

    @_on.register
    def _(self, event: ev.StageEntered) -> None:
        self._stages.append(views.StageView(event.stage, event.detail, self._step, event.duration))

    @_on.register
    def _(self, event: ev.TextTokenized) -> None:
        pieces = tuple(bytes.fromhex(piece) for piece in event.pieces)
        self._tokens.append(views.TokensView(event.text, event.token_ids, pieces))

    @_on.register
    def _(self, event: ev.PiecesMerged) -> None:
        left, right = event.pair
        self._merges.append(
            views.MergeView(
                tuple(bytes.fromhex(piece) for piece in event.pieces),
                (bytes.fromhex(left), bytes.fromhex(right)),
                event.rank,
            )
        )

    @_on.register
    def _(self, event: ev.LogitsComputed) -> None:
        self._logits.append(event)

    @_on.register
    def _(self, event: ev.LayerComputed) -> None:
        self._layers.append(event)

    @_on.register
    def _(self, event: ev.TensorSeen) -> None:
        self._tensors.append(views.TensorView(event.name, event.role, event.shape))

    @_on.register
    def _(self, event: ev.TokensComputed) -> None:
        lane = self._lanes.get(event.lane)
        self._lanes[event.lane] = views.LaneView(
            event.lane,
            (*(lane.passes if lane else ()), event.num_tokens),
            (*(lane.durations if lane else ()), event.duration),
            event.total_tokens,
            event.cache_tokens,
            (lane.text if lane else "") + event.text,
            lane.dropped if lane else (),
        )

    @_on.register
    def _(self, event: ev.CacheDropped) -> None:
        lane = self._lanes[event.lane]
        self._lanes[event.lane] = msgspec.structs.replace(
            lane,
            cache_tokens=lane.cache_tokens - event.num_dropped,
            dropped=(*lane.dropped, (event.position, event.num_dropped)),
        )

    @_on.register
    def _(self, event: ev.TokenTimed) -> None:
        self._timed.append(event)

    @_on.register
    def _(self, event: ev.CacheFilled) -> None:
        self._fillings[event.kv_type] = event

    @_on.register
    def _(self, event: ev.BufferMeasured) -> None:
        self._buffers.append(
            views.BufferView(
                event.label, event.n_ctx, event.n_seq, event.type_k, event.type_v, event.num_cells,
                event.measured_bytes, event.formula_bytes,
            )
        )  # fmt: skip

    @_on.register
    def _(self, event: ev.PassRun) -> None:
        self._passes.append(event)

    @_on.register
    def _(self, event: ev.FrameWritten) -> None:
        self._frames.append(event)

    @_on.register
    def _(self, event: ev.TimingsRead) -> None:
        self._timings.append(event)

    @_on.register
    def _(self, event: ev.AttentionRead) -> None:
        self._attention.append(event)

    @_on.register
    def _(self, event: ev.DistributionShaped) -> None:
        self._shapes.append(event)

    @_on.register
    def _(self, event: ev.TokensDrawn) -> None:
        self._draws = event

    @_on.register
    def _(self, event: ev.StreamGrew) -> None:
        self._streams.append(event)

    @_on.register
    def _(self, event: ev.TablesCompared) -> None:
        self._compared = event

    @_on.register
    def _(self, event: ev.Noted) -> None:
        self._note = event.text

    def view(self) -> views.LabView:
        return views.LabView(
            header=self._header,
            step=self._step,
            ts=self._ts,
            serving=self._serving.view(),
            stages=tuple(self._stages),
            tokens=tuple(self._tokens),
            merges=tuple(self._merges),
            logits=tuple(self._logits),
            layers=tuple(self._layers),
            tensors=tuple(self._tensors),
            lanes=tuple(self._lanes.values()),
            buffers=tuple(self._buffers),
            attention=tuple(self._attention),
            shapes=tuple(self._shapes),
            draws=self._draws,
            streams=tuple(self._streams),
            note=self._note,
            passes=tuple(self._passes),
            frames=tuple(self._frames),
            timings=tuple(self._timings),
            compared=self._compared,
            timed=tuple(self._timed),
            fillings=tuple(self._fillings.values()),
        )

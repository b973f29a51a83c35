"""Views as plain text, one statement a line: the twin of the panels for screen readers, pipes and tests."""

from __future__ import annotations

from collections.abc import Sequence

from tutor.metrics.characters import characters
from tutor.trace.events import LogitsComputed
from tutor.trace.views import LabView, RequestView, ServingView, StageView, TokensView


def heading(view: LabView) -> str:
    header = view.header
    return f"{header.lab}: {header.provenance}, {header.model}, {header.hardware}, step {view.step}"


def serving_text(view: LabView) -> str:
    """The serving engine at one step."""
    serving = view.serving
    lines = [heading(view)]
    last = serving.last
    if last is not None and view.step:
        lines.append(
            f"step ran {last.num_tokens} of {last.token_budget} tokens in {last.duration * 1000:.0f} ms"
            + (f"; {last.reason}" if last.reason else "")
        )
        for share in last.scheduled:
            request = serving.request(share.request_id)
            label = request.label if request else share.request_id
            lines.append(f"  slot {share.slot}: {label} {share.phase}, {share.reason}")
    lines += [_request_line(request) for request in serving.requests]
    lines.append(_blocks_line(serving))
    if serving.cells is not None:
        lines.append(
            f"llama.cpp's cells: {serving.cells.num_compared} compared, "
            f"{serving.cells.num_mismatches} mismatches"
        )
    return "\n".join(lines)


def _request_line(request: RequestView) -> str:
    blocks = ",".join(map(str, request.block_ids)) or "none"
    line = (
        f"{request.label} {request.status}: {request.num_computed_tokens} computed "
        f"({request.num_cached_tokens} cached), {request.num_output_tokens}/{request.max_tokens} out, "
        f"blocks {blocks}"
    )
    return line + (f", ended by {request.finish_reason}" if request.finish_reason else "")


def _blocks_line(serving: ServingView) -> str:
    shared = [f"{block.block_id} by {''.join(block.owners)}" for block in serving.blocks if block.ref_cnt > 1]
    cached = sum(block.ref_cnt == 0 and bool(block.block_hash) for block in serving.blocks)
    return (
        f"blocks: {serving.num_used_blocks} of {len(serving.blocks)} used, {cached} cached, "
        f"shared {'; '.join(shared) or 'none'}; preemptions {serving.num_preemptions}; "
        f"prefix hits {serving.prefix_hits} of {serving.prefix_queries} tokens"
    )


def _note(view: LabView) -> list[str]:
    return [view.note] if view.note else []


def request_text(view: LabView) -> str:
    """The stage at hand; at the end what each stage took and how often it ran."""
    lines = [heading(view), *_note(view)]
    if view.stages:
        stage = view.stages[-1]
        lines.append(f"{stage.stage}: {stage.detail}{_took(stage.duration)}")
        if stage.stage == "stop":
            lines += _stage_times(view.stages)
    if view.tokens and view.stages and view.stages[-1].stage == "tokenize":
        lines += _token_lines(view.tokens[-1])
    if view.logits:
        lines.append(_logits_line(view.logits[-1]))
    lines += [f"text so far: {lane.text}" for lane in view.lanes if lane.text]
    return "\n".join(lines)


def _took(seconds: float | None) -> str:
    return "" if seconds is None else f" ({seconds * 1000:.1f} ms)"


def _stage_times(stages: Sequence[StageView]) -> list[str]:
    """One line for each stage, in the order in which they began."""
    lines = []
    for name in dict.fromkeys(stage.stage for stage in stages):
        took = [stage.duration for stage in stages if stage.stage == name and stage.duration is not None]
        if took:
            times = f" in {len(took)} passes" if len(took) > 1 else ""
            lines.append(f"  {name}: {sum(took) * 1000:.1f} ms{times}")
    return lines


def _logits_line(logits: LogitsComputed) -> str:
    pairs = zip(logits.texts[:4], logits.probabilities, strict=False)
    likely = ", ".join(f"{text!r} {probability:.1%}" for text, probability in pairs)
    return f"next token after position {logits.position}: {likely} (entropy {logits.entropy:.2f} bits)"


def _token_lines(tokens: TokensView) -> list[str]:
    lines = [f"{tokens.text!r}: {len(tokens.token_ids)} tokens, {len(tokens.text.encode())} bytes"]
    for token_id, piece in zip(tokens.token_ids, tokens.pieces, strict=True):
        text = piece.decode("utf-8", "replace")
        lines.append(f"  {token_id:6} {text!r} bytes {piece.hex(' ')}")
    if b"".join(tokens.pieces) == tokens.text.encode():
        cut = [char for char in characters(tokens.text, tokens.pieces) if char.is_cut]
        lines += [f"  {char.text!r} is cut into {len(char.parts)} tokens" for char in cut]
    return lines


def tokens_text(view: LabView) -> str:
    """Token boxes, then the merges of a word."""
    lines = [heading(view), *_note(view)]
    if view.merges:
        merge = view.merges[-1]
        pieces = " | ".join(piece.decode("utf-8", "replace") for piece in merge.pieces)
        joined = b" + ".join(merge.pair).decode("utf-8", "replace")
        lines.append(f"{pieces}" + (f"   (joined {joined}, rank {merge.rank})" if merge.rank >= 0 else ""))
    elif view.tokens:
        for tokens in view.tokens if len(view.tokens) < 3 else view.tokens[-2:]:
            lines += _token_lines(tokens)
    return "\n".join(lines)


def forward_text(view: LabView) -> str:
    """Graph nodes, then the logit lens."""
    lines = [heading(view), *_note(view)]
    if view.layers:
        layer = view.layers[-1]
        pairs = zip(layer.texts, layer.probabilities, strict=True)
        likely = ", ".join(f"{text!r} {probability:.1%}" for text, probability in pairs)
        lines.append(f"layer {layer.layer}: would say {likely}; norm of the state {layer.norm:.1f}")
    elif view.tensors:
        tensor = view.tensors[-1]
        lines.append(f"{tensor.name} {'x'.join(map(str, tensor.shape))}: {tensor.role}")
    return "\n".join(lines + [_logits_line(logits) for logits in view.logits])


def lanes_text(view: LabView) -> str:
    """Ways of computing the same text, side by side."""
    lines = [heading(view), *_note(view)]
    for lane in view.lanes:
        lines.append(
            f"{lane.lane}: this pass {lane.passes[-1]} tokens in {lane.durations[-1] * 1000:.1f} ms, "
            f"{lane.total_tokens} in total, {lane.cache_tokens} in the cache"
        )
        lines += [f"  dropped {count} entries from position {position}" for position, count in lane.dropped]
        lines.append(f"  {lane.text!r}")
    return "\n".join(lines)


def buffers_text(view: LabView) -> str:
    """KV buffers: llama.cpp's figure beside the formula's."""
    lines = [heading(view), *_note(view)]
    for b in view.buffers:
        lines.append(
            f"{b.label}: n_ctx {b.n_ctx}, {b.n_seq} seq, K {b.type_k} V {b.type_v}: {b.num_cells} cells, "
            f"llama.cpp {b.measured_bytes / 2**20:.2f} MiB, formula {b.formula_bytes / 2**20:.2f} MiB"
        )
    return "\n".join(lines)

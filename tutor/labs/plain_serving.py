"""The whole engine as plain text: the serving picture, then what each mechanism did so far."""

from __future__ import annotations

from tutor.labs.plain import serving_text
from tutor.metrics.waste import kv_waste
from tutor.trace.views import LabView


def engine_text(view: LabView) -> str:
    """`serving_text` and the sums; without notes the first line is the heading."""
    note = [view.note] if view.note else []
    return "\n".join([serving_text(view), *note, *mechanism_lines(view)])


def mechanism_lines(view: LabView) -> list[str]:
    """One line a mechanism, counted from the trace since it began. A mechanism that did nothing says so."""
    serving, m = view.serving, view.serving.mechanisms
    written = serving.num_output_tokens
    rows = f" ({m.num_rows / written:.2f} a written token)" if written else ""
    lines = [
        f"so far: {m.num_steps} steps, {m.num_rows} tokens computed, {written} written{rows}, "
        f"{m.seconds:.2f} s in the engine",
        f"preemption: {m.recomputes} recomputed ({m.num_lost} tokens lost), {m.swaps_out} swapped out "
        f"({m.num_swapped} tokens saved), {m.swaps_in} swapped in",
        f"speculation: {m.num_drafted} drafted, {m.num_accepted} accepted, {m.num_rejected} wasted",
        f"tiers: {m.saves} saved, {m.loads} loaded ({m.num_loaded} tokens); "
        + ("; ".join(f"{t.name} {t.num_sequences} of {t.num_bytes:,} bytes" for t in m.tiers) or "none used"),
    ]
    waste = kv_waste(serving)
    lines.append(
        f"KV held by requests: {waste.used} used, {waste.internal} in part-filled blocks, "
        f"{waste.reserved} reserved; {waste.external_blocks} free blocks outside the longest run; "
        f"mean use {m.mean_use:.0%}"
    )
    return lines

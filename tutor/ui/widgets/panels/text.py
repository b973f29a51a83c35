"""What happens to a text: the stages of a request, its tokens, and the merges that made them."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from tutor.trace.views import LabView, TokensView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, clip, line_width, pad, printable

STAGES = ("template", "tokenize", "prefill", "decode", "detokenize", "stop")
CONTINUATION = 0x80  # bytes 10xxxxxx continue a UTF-8 character


class PipelinePanel(Panel):
    """The six stages as lights, then what each did."""

    TITLE: ClassVar[str] = "STAGES"
    WHAT: ClassVar[str] = "The request has not begun."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.stages:
            return Picture(())
        current = view.stages[-1].stage
        seen = {stage.stage for stage in view.stages}
        lights: list[tuple[str, str]] = []
        for name in STAGES:
            mark = "●" if name == current else "✓" if name in seen else "·"
            style = "accent" if name == current else "good" if name in seen else "muted"
            lights += [(f"{mark} {name}", style), ("  ", "")]
        lines: list[Line] = [tuple(lights)] if line_width(tuple(lights)) <= width else [
            (light,) for light in lights[::2]
        ]  # fmt: skip
        lines.append(())
        for name in STAGES:
            details = [stage for stage in view.stages if stage.stage == name]
            if details:
                times = f" ×{len(details)}" if len(details) > 1 else ""
                parts = textwrap.wrap(printable(details[-1].detail), max(20, width - 15)) or [""]
                style = "now" if name == current else "text"
                lines.append(((pad(name, 10), "muted"), (pad(times, 5), "muted"), (parts[0], style)))
                lines += [((" " * 15 + part, style),) for part in parts[1:4]]
        return Picture(tuple(lines), note=f"step {view.stages[-1].step}")


def _piece(piece: bytes) -> tuple[str, bool]:
    """The piece for the eye, and whether it is only part of a character."""
    try:
        return printable(piece.decode()).replace(" ", "␣") or "·", False
    except UnicodeDecodeError:
        return piece.hex(" "), True


class TokensPanel(Panel):
    """Tokens as boxes, with id and bytes below; the newest text last."""

    TITLE: ClassVar[str] = "TOKENS"
    WHAT: ClassVar[str] = "No text was tokenized yet."

    def picture(self, view: LabView, width: int) -> Picture:
        lines: list[Line] = []
        for tokens in view.tokens:
            lines += _boxes(tokens, width)
        last = view.tokens[-1] if view.tokens else None
        note = f"{len(last.token_ids)} tokens, {len(last.text.encode())} bytes" if last else ""
        return Picture(tuple(lines), (), note)

    @property
    def follows_end(self) -> bool:
        return True


def _boxes(tokens: TokensView, width: int) -> list[Line]:
    head = clip(printable(tokens.text), width - 14)
    lines: list[Line] = [((head, "now"), (f"  {len(tokens.token_ids)} tokens", "muted"))]
    rows: list[list[tuple[str, str, str, bool]]] = [[]]
    used = 0
    for token_id, piece in zip(tokens.token_ids, tokens.pieces, strict=True):
        shown, partial = _piece(piece)
        size = f"{len(piece)}B"
        room = max(len(shown), len(str(token_id)), len(size)) + 3
        if used + room > width and rows[-1]:
            rows.append([])
            used = 0
        rows[-1].append((shown, str(token_id), size, partial))
        used += room
    for row in rows:
        upper: list[tuple[str, str]] = []
        ids: list[tuple[str, str]] = []
        sizes: list[tuple[str, str]] = []
        for shown, number, size, partial in row:
            room = max(len(shown), len(number), len(size)) + 1
            upper += [("▏", "muted"), (pad(shown, room), "accent" if partial else "text"), (" ", "")]
            ids += [("▏", "muted"), (pad(number, room), "bar"), (" ", "")]
            sizes += [("▏", "muted"), (pad(size, room), "muted"), (" ", "")]
        lines += [tuple(upper), tuple(ids), tuple(sizes), ()]
    return lines


class MergesPanel(Panel):
    """A word's pieces after each merge; the pair that was just joined is marked."""

    TITLE: ClassVar[str] = "MERGES"
    WHAT: ClassVar[str] = "No merge was shown yet."

    def picture(self, view: LabView, width: int) -> Picture:
        lines: list[Line] = []
        for merge in view.merges:
            joined = b"".join(merge.pair)
            runs: list[tuple[str, str]] = []
            for piece in merge.pieces:
                style = "accent" if piece == joined and merge.rank >= 0 else "text"
                runs += [(_piece(piece)[0], style), (" ", "")]
            if merge.rank >= 0:
                left, right = (_piece(part)[0] for part in merge.pair)
                runs.append((f"  {left}+{right}, rank {merge.rank}", "muted"))
            else:
                lines.append(())
            lines.append(tuple(runs))
        return Picture(tuple(lines), (), f"{sum(m.rank >= 0 for m in view.merges)} merges")

    @property
    def follows_end(self) -> bool:
        return True

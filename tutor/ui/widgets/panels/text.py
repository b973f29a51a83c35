"""What happens to a text: its tokens, and the merges that made them."""

from __future__ import annotations

from typing import ClassVar

from tutor.trace.views import LabView, TokensView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, clip, pad, printable

CONTINUATION = 0x80  # bytes 10xxxxxx continue a UTF-8 character


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
        note = f"{len(view.tokens)} texts" if view.tokens else ""
        if len(view.tokens) == 1:
            only = view.tokens[0]
            note = f"{_count(only)}, {len(only.text.encode())} bytes"
        return Picture(tuple(lines), (), note)


def _count(tokens: TokensView) -> str:
    return f"{len(tokens.token_ids)} token{'' if len(tokens.token_ids) == 1 else 's'}"


def _boxes(tokens: TokensView, width: int) -> list[Line]:
    head = clip(printable(tokens.text), width - 14)
    lines: list[Line] = [((head, "now"), (f"  {_count(tokens)}", "muted"))]
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

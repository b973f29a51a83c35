"""The transport line of a lab: step, state, speed and a slider that a click moves."""

from __future__ import annotations

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

# status of a lab session -> (mark, word)
STATUS = {
    "starting": ("…", "starting"),
    "running": ("►", "running"),
    "paused": ("‖", "paused"),
    "done": ("✓", "finished"),
    "dead": ("✗", "the engine died"),
    "stopped": ("·", "stopped"),
    "replay": ("►", "replay"),
}
STATE_WIDTH = 17


class Transport(Static):
    class Sought(Message):
        """The learner clicked on this step."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, dead: str) -> None:
        """`dead`: the words for an engine or a server that has ended by itself."""
        super().__init__(markup=False)
        self._dead = dead
        self._shown: tuple[int, int, str, float, bool] | None = None
        self._slider = (0, 0)

    def show(self, step: int, last: int, status: str, speed: float, playing: bool) -> None:
        """Repaints only when one of them changed. `playing`: the cursor moves by itself."""
        now = (step, last, status, speed, playing)
        if now != self._shown:
            self._shown = now
            self._paint()

    def on_resize(self) -> None:
        self._paint()

    def _paint(self) -> None:
        if self._shown is None:
            return
        step, last, status, speed, playing = self._shown
        mark, word = STATUS[status]
        if status == "dead":
            word = self._dead
        behind = step < last
        if status in ("replay", "done", "dead", "stopped") and playing and behind:
            mark, word = "►", "playing"
        elif behind and not playing:
            mark, word = "‖", "looking back"
        left = f"step {step}/{last}"
        state = f"{mark} {word}"
        rate = f"{speed:g}×"
        used = len(left) + STATE_WIDTH + len(rate) + 7
        width = max(8, self.content_size.width - used)
        at = round((width - 1) * (step / last)) if last else 0
        self._slider = (len(left) + 3, width)
        rail = Content.assemble(
            ("━" * at, "$primary"), ("●", "bold $accent"), ("─" * (width - 1 - at), "$secondary")
        )
        self.update(
            Content.assemble(
                (left, "bold"), "  [", rail, "]  ", (state.ljust(STATE_WIDTH), "bold"), f" {rate}"
            )
        )

    def on_click(self, event: Click) -> None:
        start, width = self._slider
        x = event.x - self.gutter.left - start
        if self._shown is not None and 0 <= x < width:
            self.post_message(self.Sought(round(self._shown[1] * x / max(1, width - 1))))

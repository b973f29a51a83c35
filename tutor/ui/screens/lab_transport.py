"""The keys of a lab that move through its steps: pause, step, speed, seek, follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on

from tutor.ui.screens.base import TutorScreen
from tutor.ui.widgets.transport import Transport

if TYPE_CHECKING:
    from tutor.labs.session import LabSession


class TransportActions(TutorScreen):
    """For a screen with a `session`."""

    session: LabSession

    async def action_pause(self) -> None:
        """Pause or go on; at the end of a run or recording, play it again from the start."""
        s = self.session
        if not s.is_live and s.playback is not None and s.playback.at_end:
            await s.seek(0)  # it also ends the following of what can bring nothing new
        await s.toggle_pause()

    async def action_forward(self) -> None:
        await self.session.step_forward()

    async def action_backward(self) -> None:
        await self.session.step_back()

    async def action_slower(self) -> None:
        await self.session.slower()

    async def action_faster(self) -> None:
        await self.session.faster()

    async def action_seek(self, step: int) -> None:
        await self.session.seek(self.session.last_step if step < 0 else step)

    @on(Transport.Sought)
    async def _sought(self, event: Transport.Sought) -> None:
        await self.session.seek(event.step)

    async def action_follow(self) -> None:
        await self.session.follow()

    def action_go_to(self) -> None:
        from tutor.ui.screens.goto import GoToScreen

        self.app.push_screen(GoToScreen(self.session.last_step), self._go_to)

    async def _go_to(self, step: int | None) -> None:
        if step is not None:
            await self.session.seek(step)

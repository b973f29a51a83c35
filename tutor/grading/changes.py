"""When to look at a folder again: notifications where they work, polling where they do not, and a slow tick.

The tick covers what a notification cannot: a link whose target is elsewhere, a folder that was replaced,
events that the kernel dropped. So a change is seen within a second even then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from watchfiles import awatch
from watchfiles._rust_notify import WatchfilesRustInternalError

from tutor.grading.mounts import is_network

TICK_MS = 1000
POLL_MS = 300
_QUIET_MS = 20  # after an event, wait for this long without another one …
_LONGEST_MS = 200  # … but not longer than this


async def changes(folder: Path, poll: bool = False) -> AsyncGenerator[None, None]:
    """Yield at once, then whenever something in `folder` may have changed, and once a tick. Never ends.

    Polls when `poll` says so, on a network file system, and when notifications cannot be had. The folder
    may be missing, go away and come back.
    """
    yield
    poll = poll or await asyncio.to_thread(is_network, folder)
    while True:
        watched = _identity(folder)
        try:
            async with aclosing(_events(folder, poll)) as events:
                async for _ in events:
                    yield
                    if _identity(folder) != watched:
                        break  # another folder has its name now: the old watch sees nothing of it
        except FileNotFoundError:
            await asyncio.sleep(TICK_MS / 1000)
            yield
        except (OSError, WatchfilesRustInternalError):  # no inotify instance left, no permission, …
            if poll:
                await asyncio.sleep(TICK_MS / 1000)
            poll = True
            yield


def _events(folder: Path, poll: bool) -> AsyncGenerator[object, None]:
    return awatch(
        folder,
        watch_filter=None,
        debounce=_LONGEST_MS,
        step=_QUIET_MS,
        rust_timeout=TICK_MS,
        yield_on_timeout=True,
        force_polling=poll or None,  # None: WATCHFILES_FORCE_POLLING and WSL decide
        poll_delay_ms=POLL_MS,
        recursive=False,
    )


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino

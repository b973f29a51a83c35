"""One life of the engine process, as its owner sees it: commands go in, messages come out, it ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator

from tutor.endpoint import messages as msg

MAX_LINE = 1 << 26  # a long prompt's tokens come back on one line
LAST_WORDS = 12
STOP_LIMIT = 5.0  # seconds that the process gets to end by itself


class EngineProcess:
    """Made by `start`. Read `messages()` to their end; then `exit_code` and `last_words` are known."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.pid = process.pid
        self._process = process
        self._commands, self._messages = process.stdin, process.stdout
        self._words: deque[str] = deque(maxlen=LAST_WORDS)
        self._listener = asyncio.create_task(_collect(process.stderr, self._words))

    @classmethod
    async def start(cls, settings: msg.Settings) -> EngineProcess:
        # llama.cpp answers a failed assertion by starting a debugger; the last words suffice.
        environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tutor.endpoint.child",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, limit=MAX_LINE, env=environment,
        )  # fmt: skip
        engine = cls(process)
        engine._commands.write(msg.encode(settings))
        return engine

    def write(self, command: msg.Command) -> None:
        """A process that died is noticed where its messages are read."""
        if not self._commands.is_closing():
            self._commands.write(msg.encode(command))

    async def messages(self) -> AsyncIterator[msg.Message]:
        """What it says, until it has ended."""
        async for line in self._messages:
            yield msg.decode_message(line)
        await self._listener
        await self._process.wait()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def last_words(self) -> tuple[str, ...]:
        """The latest lines on its stderr."""
        return tuple(self._words)

    async def end(self) -> None:
        """End of file asks it to end; one that does not is killed."""
        if self._process.returncode is None:
            self._commands.close()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_LIMIT)
            except TimeoutError:
                self.kill()
                await self._process.wait()

    def kill(self) -> None:
        """At once; works on a process that is stopped or spins as well."""
        if self._process.returncode is None:
            self._process.kill()


async def _collect(stream: asyncio.StreamReader, words: deque[str]) -> None:
    async for line in stream:
        words.append(line.decode("utf-8", "replace").rstrip())

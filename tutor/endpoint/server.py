"""A running server: the application under uvicorn, the engine behind it, and their orderly end."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import msgspec
import uvicorn

from tutor import __version__
from tutor.endpoint.app import make_app
from tutor.endpoint.engine_client import HANG_LIMIT, EngineClient
from tutor.endpoint.errors import ApiError, unavailable
from tutor.endpoint.messages import Settings
from tutor.endpoint.observer import Observer, TraceSink
from tutor.endpoint.service import Service
from tutor.llama.model import find_model

KEEP_ALIVE = 75  # seconds that an idle connection stays open; clients are told, and Node.js heeds it
MARGIN = 2.0  # seconds between the end of the grace time and the cutting of connections
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
BACKLOG = 2048


class ServerError(Exception):
    """The server cannot start; the message is a sentence."""


@dataclass(frozen=True)
class ServerOptions:
    """Port 0 takes any free one. `grace`: seconds that running answers get when the server is stopped.

    hang_limit: seconds that the engine may do nothing while requests wait; then it is started again. 0: any.
    Raises ServerError for an empty host, and for one that other machines reach when there is no key.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str = ""
    max_waiting: int = 64
    grace: float = 5.0
    model_name: str = ""
    hang_limit: float = HANG_LIMIT

    def __post_init__(self) -> None:
        if not self.host.strip():
            raise ServerError("--host needs an address: 127.0.0.1 for this machine, 0.0.0.0 for all.")
        if not is_loopback(self.host) and not self.key:
            raise ServerError(
                f"{self.host} can be reached from other machines: set --api-key or TUTOR_API_KEY."
            )

    @property
    def key(self) -> str:
        """Without what a file or a variable adds around it, which clients do not send."""
        return self.api_key.strip()


def is_loopback(host: str) -> bool:
    """Can only this machine reach that address?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """`run()` serves until the process gets SIGINT or SIGTERM, or `stop()` is called.

    on_screen: another program owns terminal and signals, so nothing is printed and no signal caught.
    on_ready is told the URL; on_death the sentence when the engine died; sink gets the trace.
    """

    def __init__(
        self,
        settings: Settings,
        options: ServerOptions,
        *,
        on_ready: Callable[[str], None] | None = None,
        on_death: Callable[[str], None] | None = None,
        sink: TraceSink | None = None,
        on_screen: bool = False,
    ) -> None:
        """Raises ModelNotFound or BrokenModel."""
        name = options.model_name or find_model(settings.model).stem
        settings = msgspec.structs.replace(settings, trace=sink is not None)
        self._options = options
        self._on_ready = on_ready or (lambda _url: None)
        self.observer = Observer(name, sink)
        self.engine = EngineClient(
            settings, self.observer, max_waiting=options.max_waiting, hang_limit=options.hang_limit,
            on_death=on_death,
        )  # fmt: skip
        hosts = LOOPBACK_NAMES | {options.host} if is_loopback(options.host) else frozenset()
        self.service = Service(self.engine, self.observer, name, __version__, options.key, hosts)
        self.app = make_app(self.service)
        config = uvicorn.Config(
            self.app, log_config=None, log_level="critical" if on_screen else "warning", access_log=False,
            lifespan="off", timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=round(options.grace + MARGIN),
            backlog=BACKLOG, server_header=False, headers=[("keep-alive", f"timeout={KEEP_ALIVE}")],
        )  # fmt: skip
        self._uvicorn = _Uvicorn(config, self._drain, catches_signals=not on_screen)
        self.url = ""

    async def run(self) -> None:
        """Start the engine, listen, serve, end. Raises ServerError."""
        listener = self._listen()
        with listener:
            try:
                await self.engine.start()
            except ApiError as error:
                await self.engine.close()
                raise ServerError(self.engine.error or error.message) from error
            self._on_ready(self.url)
            try:
                await self._uvicorn.serve([listener])
            finally:
                await self.engine.close()

    def stop(self) -> None:
        """End as after SIGTERM."""
        self._uvicorn.should_exit = True

    def _listen(self) -> socket.socket:
        """Bind before the engine loads, so that a taken port is told at once."""
        host, port = self._options.host, self._options.port
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, proto)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise ServerError(f"Cannot listen on {host} port {port}: {error.strerror}.") from error
        listener.setblocking(False)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{listener.getsockname()[1]}"
        return listener

    async def _drain(self) -> None:
        """Give running answers their time, then end them with an error that clients can read."""
        await asyncio.sleep(self._options.grace)
        self.engine.fail_all(unavailable("The server is shutting down.", None))


class _Uvicorn(uvicorn.Server):
    """Runs `drain` beside uvicorn's own shutdown, which waits for running answers."""

    def __init__(
        self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]], catches_signals: bool
    ) -> None:
        super().__init__(config)
        self._catches_signals = catches_signals
        self._begin_drain = drain

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        with super().capture_signals() if self._catches_signals else nullcontext():
            yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = asyncio.ensure_future(self._begin_drain())
        try:
            await super().shutdown(sockets)
        finally:
            draining.cancel()

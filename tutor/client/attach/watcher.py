"""Polls one server. It may not be up yet, may go away, come back, or be something else when it does."""

from __future__ import annotations

import time

import httpx2
import msgspec

from tutor.client.attach.dialects import LLAMA, recognise
from tutor.client.attach.fold import WINDOW, Fold
from tutor.client.attach.scrape import parse
from tutor.client.attach.slots import parse_slots
from tutor.client.attach.views import ServerView, SlotView
from tutor.client.http import fetch, message_of, why

ENABLE = {
    "llama-server": "Start llama-server with --metrics.",
    "sglang": "Start SGLang with --enable-metrics.",
    "unknown": "vLLM has /metrics always; SGLang needs --enable-metrics, llama-server --metrics.",
}


class _Info(msgspec.Struct):
    """What the three kinds of info answers have in common; each has some of it."""

    version: str = ""
    model_path: str = ""
    model_alias: str = ""
    build_info: str = ""
    total_slots: int | None = None
    max_total_num_tokens: int | None = None
    max_running_requests: int | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model] = []


class Watcher:
    """`poll()` asks the server once and returns the view; it never raises for what a server does.

    `client` has the server's root as its base. `clock` gives seconds and never goes back.
    """

    def __init__(self, client: httpx2.AsyncClient, url: str, window: float = WINDOW) -> None:
        self._client = client
        self._url = url
        self._window = window
        self._fold: Fold | None = None
        self._info: _Info | None = None
        self._model = ""
        self._view = ServerView(url=url)
        self._read_at = 0.0
        self._num_polls = 0
        self._restarts = 0

    async def poll(self) -> ServerView:
        self._num_polls += 1
        try:
            response = await fetch(self._client, "/metrics")
        except httpx2.HTTPError as error:
            return self._silent(f"{why(error).capitalize()}.")
        if response.status_code in (401, 403):
            return self._silent(f"The server answered {response.status_code}: it wants a key (--api-key).")
        if response.status_code >= 500 and response.status_code != 501:
            return self._silent(f"The server answered {response.status_code}: {message_of(response.content)}")
        if response.status_code != 200:
            return await self._without_metrics(response.status_code)
        scrape = parse(response.text)
        dialect = recognise(scrape)
        if dialect is None:
            return await self._without_metrics(200)
        now = time.monotonic()
        if self._fold is None or self._fold.dialect is not dialect:
            self._restarts += self._fold is not None
            self._fold = Fold(dialect, self._window)
            self._info = None
        before = self._fold.num_restarts
        self._fold.take(scrape, now)
        if self._info is None or self._fold.num_restarts != before:
            await self._ask_info(dialect.kind)
        slots = await self._slots() if dialect is LLAMA else ()
        self._read_at = now
        return self._show(self._fold.view(self._url, slots))

    @property
    def view(self) -> ServerView:
        return self._view

    # --- the other endpoints --------------------------------------------------------------------

    async def _json(self, path: str) -> bytes | None:
        """The body of a 200, or None."""
        try:
            response = await fetch(self._client, path)
        except httpx2.HTTPError:
            return None
        return response.content if response.status_code == 200 else None

    async def _ask_info(self, kind: str) -> None:
        paths = {
            "sglang": ("/get_server_info", "/server_info"),
            "llama-server": ("/props",),
            "vllm": ("/version",),
        }
        self._info = _Info()
        for path in paths.get(kind, ()):
            body = await self._json(path)
            if body is None:
                continue
            try:
                self._info = msgspec.json.decode(body, type=_Info)
            except msgspec.DecodeError:
                continue
            break
        models = await self._json("/v1/models")
        try:
            listed = msgspec.json.decode(models, type=_Models).data if models else []
        except msgspec.DecodeError:
            listed = []
        self._model = listed[0].id if listed else self._info.model_alias or self._info.model_path

    async def _slots(self) -> tuple[SlotView, ...]:
        body = await self._json("/slots")
        try:
            return parse_slots(body) if body is not None else ()
        except msgspec.DecodeError:
            return ()

    # --- views ----------------------------------------------------------------------------------

    async def _without_metrics(self, status: int) -> ServerView:
        """No metrics that we know: find out what it is, to say what to type. Slots show even so."""
        slots = await self._slots()
        kind, name = "unknown", "a server"
        if slots:
            kind, name = "llama-server", "llama-server"
        elif await self._json("/get_server_info") is not None:
            kind, name = "sglang", "SGLang"
        self._fold = None
        what = "no metrics that the tutor knows" if status == 200 else f"no /metrics ({status})"
        busy = sum(slot.busy for slot in slots)
        self._read_at = time.monotonic()
        return self._show(
            ServerView(
                url=self._url,
                kind=kind,
                name=name,
                status="no metrics",
                problem=f"This is {name} with {what}. {ENABLE[kind]}",
                running=float(busy) if slots else None,
                capacity=len(slots) or None,
                slots=slots,
            )
        )

    def _silent(self, problem: str) -> ServerView:
        """Keep the last figures, marked as old."""
        answered = self._view.status in ("ok", "silent", "no metrics")
        return self._show(
            msgspec.structs.replace(self._view, status="silent" if answered else "starting", problem=problem)
        )

    def _show(self, view: ServerView) -> ServerView:
        restarts = self._restarts + (self._fold.num_restarts if self._fold is not None else 0)
        self._view = msgspec.structs.replace(
            view,
            model=view.model or self._model,
            version=(self._info.version or self._info.build_info) if self._info is not None else "",
            facts=self._facts(view),
            num_polls=self._num_polls,
            num_restarts=restarts,
            age=time.monotonic() - self._read_at if self._read_at else 0.0,
        )
        return self._view

    def _facts(self, view: ServerView) -> tuple[str, ...]:
        info = self._info or _Info()
        slots = view.capacity or info.total_slots
        facts = (
            (slots, "{} slots"),
            (info.max_total_num_tokens, "room for {:,} tokens"),
            (info.max_running_requests, "at most {} running"),
        )
        return tuple(text.format(value) for value, text in facts if value)

"""Polls one server. It may not be up yet, may go away, come back, or be something else when it does."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import quote

import httpx2
import msgspec

from tutor.client.attach.dialects import LLAMA, recognise
from tutor.client.attach.fold import WINDOW, Fold
from tutor.client.attach.problems import no_metrics, refused, unreachable
from tutor.client.attach.scrape import parse
from tutor.client.attach.slots import parse_slots
from tutor.client.attach.views import ServerView, SlotView
from tutor.client.http import message_of, send

LONGEST = 10.0  # seconds for one page, however slowly it comes and whether it ends or not
MOST_BYTES = 16 << 20
OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama-server"}
NAMES = {"vllm": "vLLM", "sglang": "SGLang", "llama-server": "llama-server", "ollama": "Ollama",
         "page": "a web server", "unknown": "a server"}  # fmt: skip


class _Page(msgspec.Struct, frozen=True):
    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


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
    owned_by: str = ""


class _Models(msgspec.Struct):
    data: list[_Model] = []


class Watcher:
    """`poll()` asks the server once and returns the view; it never raises for what a server does.

    `client` has the server's root as its base. `model` names one of several that llama-server routes to.
    """

    def __init__(
        self, client: httpx2.AsyncClient, url: str, window: float = WINDOW, *, model: str = ""
    ) -> None:
        self._client = client
        self._url = url
        self._query = f"?model={quote(model, safe='')}" if model else ""
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
            page = await self._page("/metrics")
        except httpx2.HTTPError as error:
            return self._silent(unreachable(error, self._url))
        except TimeoutError:
            return self._silent(
                f"The page /metrics did not end within {LONGEST:g} s or {MOST_BYTES >> 20} MiB."
            )
        if page.status != 200:
            has_key = "Authorization" in self._client.headers
            problem = refused(page.status, message_of(page.body), has_key)
            return self._silent(problem) if problem else await self._without_metrics(page)
        scrape = parse(page.text)
        dialect = recognise(scrape)
        if dialect is None:
            return await self._without_metrics(page)
        if scrape.cut:
            return self._silent("The page /metrics was cut off in the middle.")
        now = time.monotonic()
        if self._fold is None or self._fold.dialect is not dialect:
            self._restarts += 1 + self._fold.num_restarts if self._fold is not None else 0
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

    async def _page(self, path: str) -> _Page:
        """GET `path`. TimeoutError where the answer does not end: some other server may send for ever."""
        request = self._client.build_request("GET", path + self._query)
        async with asyncio.timeout(LONGEST):
            response, _ = await send(self._client, request, stream=True)
            body = bytearray()
            try:
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise TimeoutError
            finally:
                await response.aclose()
        return _Page(response.status_code, bytes(body))

    async def _json(self, path: str) -> bytes | None:
        """The body of a 200 that can be JSON, or None: a web server may answer anything with a page."""
        try:
            page = await self._page(path)
        except (httpx2.HTTPError, TimeoutError):
            return None
        return page.body if page.status == 200 and page.body.strip()[:1] in (b"{", b"[") else None

    async def _listed(self) -> list[_Model]:
        body = await self._json("/v1/models")
        try:
            return msgspec.json.decode(body, type=_Models).data if body else []
        except msgspec.DecodeError:
            return []

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
        listed = await self._listed()
        self._model = listed[0].id if listed else self._info.model_alias or self._info.model_path

    async def _slots(self) -> tuple[SlotView, ...]:
        body = await self._json("/slots")
        try:
            return parse_slots(body) if body is not None else ()
        except msgspec.DecodeError:
            return ()

    # --- views ----------------------------------------------------------------------------------

    async def _recognise(self, slots: tuple[SlotView, ...], page: _Page) -> str:
        """What a server is that tells nothing in /metrics, by what else it has."""
        if slots or "--metrics" in page.text:
            return "llama-server"
        owners = {OWNERS[model.owned_by] for model in await self._listed() if model.owned_by in OWNERS}
        if owners:
            return owners.pop()
        for path, kind in (
            ("/get_server_info", "sglang"),
            ("/server_info", "sglang"),
            ("/api/tags", "ollama"),
        ):
            if await self._json(path) is not None:
                return kind
        return "page" if "<html" in page.text[:1000].lower() else "unknown"

    async def _without_metrics(self, page: _Page) -> ServerView:
        """No metrics that we know: find out what it is, to say what to type. Slots show even so."""
        slots = await self._slots()
        kind = await self._recognise(slots, page)
        busy = sum(slot.busy for slot in slots)
        self._read_at = time.monotonic()
        return self._show(
            ServerView(
                url=self._url,
                kind=kind,
                name=NAMES[kind],
                status="no metrics",
                problem=no_metrics(kind, NAMES[kind], page.status),
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
            capacity=view.capacity or (self._most_running() if not view.engines else None),
            age=time.monotonic() - self._read_at if self._read_at else 0.0,
        )
        return self._view

    def _most_running(self) -> int | None:
        return self._info.max_running_requests if self._info is not None else None

    def _facts(self, view: ServerView) -> tuple[str, ...]:
        info = self._info or _Info()
        slots = len(view.slots) or info.total_slots
        facts = (
            (len(view.engines), "{} engines, added up"),
            (slots, "{} slots" if slots != 1 else "{} slot"),
            (info.max_total_num_tokens, "{:,} tokens of KV"),
        )
        return tuple(text.format(value) for value, text in facts if value)

"""The application without an engine: names, keys, web pages, ids, wrong paths, bounds of the metrics."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
from prometheus_client import generate_latest

from tutor.endpoint import buckets as b
from tutor.endpoint.app import make_app
from tutor.endpoint.engine_client import EngineClient
from tutor.endpoint.messages import Settings
from tutor.endpoint.observer import Observer
from tutor.endpoint.server import LOOPBACK_NAMES, Server, ServerOptions
from tutor.endpoint.service import Service
from tutor.serving.config import EngineConfig

SETTINGS = Settings(
    engine=EngineConfig(max_num_seqs=2, max_num_batched_tokens=32, num_blocks=8, max_parked=8)
)  # fmt: skip
PAGE = "http://localhost:5173"
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type,authorization",
}
Client = Callable[..., httpx2.AsyncClient]


@pytest.fixture
def client() -> Client:
    """A client of an application whose engine was never started. `key`: as on an address open to others."""

    def make(key: str = "") -> httpx2.AsyncClient:
        observer = Observer("m")
        engine = EngineClient(SETTINGS, observer, max_waiting=1)
        service = Service(engine, observer, "m", "1", key, frozenset() if key else LOOPBACK_NAMES)
        transport = httpx2.ASGITransport(app=make_app(service))
        return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    return make


@pytest.mark.parametrize(
    "value", ["[::1", "http://[", "]", "evil.example", "http://127.0.0.1@evil.example", ""]
)
async def test_names_that_are_not_the_servers(client: Client, value: str) -> None:
    """Brackets without an address must not be an error of the server (500) either."""
    async with client() as http:
        for header in ("host", "origin"):
            assert (await http.get("/", headers={header: value})).status_code == 403


async def test_a_probe_without_host_is_let_in() -> None:
    """HTTP/1.0 has no Host; browsers always send one."""
    observer = Observer("m")
    service = Service(
        EngineClient(SETTINGS, observer, max_waiting=1), observer, "m", "1", "", LOOPBACK_NAMES
    )  # fmt: skip
    sent: list[dict[str, object]] = []
    scope = {
        "type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"", "scheme": "http",
        "server": ("127.0.0.1", 1), "http_version": "1.0",
    }  # fmt: skip

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await make_app(service)(scope, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 200


async def test_a_page_of_this_machine_may_ask_and_read(client: Client) -> None:
    async with client() as http:
        asked = await http.options("/v1/chat/completions", headers={"origin": PAGE, **ASKS})
        assert asked.status_code == 200 and asked.headers["access-control-allow-origin"] == PAGE
        assert "POST" in asked.headers["access-control-allow-methods"]
        got = await http.post("/v1/chat/completions", content=b"{", headers={"origin": PAGE})
        assert got.status_code == 400 and got.headers["access-control-allow-origin"] == PAGE
        assert "retry-after" in got.headers["access-control-expose-headers"]
        foreign = {"origin": "https://localhost.evil.example"}
        assert (await http.options("/v1/chat/completions", headers={**foreign, **ASKS})).status_code == 400
        refused = await http.get("/v1/models", headers=foreign)
        assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers


async def test_with_a_key_any_page_may_ask(client: Client) -> None:
    """A browser's first question carries no key; the request itself needs it."""
    origin = {"origin": "https://elsewhere.example"}
    async with client("key") as http:
        asked = await http.options("/v1/completions", headers={**origin, **ASKS})
        assert asked.status_code == 200 and asked.headers["access-control-allow-origin"] == "*"
        refused = await http.get("/", headers=origin)
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        allowed = await http.get("/", headers={**origin, "authorization": "bearer key"})
        assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    "sent", ["Bearer", "Bearer ", "key", "Basic key", "Bearer keys", "Bearer ke", "Bearer kéy"]
)
async def test_what_is_not_the_key(client: Client, sent: str) -> None:
    async with client("key") as http:
        answer = await http.get("/", headers=[(b"authorization", sent.encode())])
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
        # A Host with a path in it does not make another path of the request.
        odd = await http.get("/v1/models", headers={"host": "x/health?"})
        assert odd.status_code == 401


async def test_a_key_beyond_ascii(client: Client) -> None:
    async with client("schlüssel") as http:
        answer = await http.get("/", headers=[(b"authorization", "Bearer schlüssel".encode())])
        assert answer.status_code == 200


def test_a_key_from_a_file_may_end_in_a_newline() -> None:
    server = Server(SETTINGS, ServerOptions(host="0.0.0.0", api_key="secret\n"))
    assert server.service.api_key == "secret"


async def test_every_answer_has_an_id(client: Client) -> None:
    async with client() as http:
        one, other = [(await http.get("/")).headers["x-request-id"] for _ in range(2)]
        assert one != other
        mine = await http.get("/nothing", headers={"x-request-id": "mine-1"})
        assert mine.status_code == 404 and mine.headers["x-request-id"] == "mine-1"
        odd = await http.get("/", headers={"x-request-id": "a b\t" * 90})
        assert len(odd.headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/chat/completions", "/v1/chat/completions?"), ("/v1/v1/completions", "/v1/completions?"),
        ("/tags", "/api/tags?"), ("/v1/responses", "no Responses API"), ("/v1/tokenize", "/tokenize?"),
    ],
)  # fmt: skip
async def test_a_wrong_path_is_told_the_right_one(client: Client, path: str, hint: str) -> None:
    async with client() as http:
        error = (await http.post(path, content=b"{}")).json()["error"]
        assert error["code"] == "unknown_url" and hint in error["message"]
        assert "mean" not in (await http.get("/nothing/of/it")).json()["error"]["message"]


async def test_a_wrong_method_and_a_slash_at_the_end(client: Client) -> None:
    async with client() as http:
        wrong = await http.put("/v1/completions")
        assert wrong.status_code == 405 and wrong.json()["error"]["code"] == "method_not_supported"
        moved = await http.post("/v1/completions/", content=b"{}")
        assert moved.status_code == 307 and moved.headers["location"].endswith("/v1/completions")
        assert (await http.head("/")).status_code == 200


# --- metrics ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("vllm:time_to_first_token_seconds", b.VLLM_TTFT),
        ("vllm:inter_token_latency_seconds", b.VLLM_GAPS),
        ("vllm:request_time_per_output_token_seconds", b.VLLM_GAPS),
        ("vllm:e2e_request_latency_seconds", b.VLLM_LATENCIES),
        ("vllm:request_queue_time_seconds", b.VLLM_LATENCIES),
        ("vllm:iteration_tokens_total", b.VLLM_STEP_TOKENS),
    ],
)
def test_the_bounds_of_vllm_are_among_ours(name: str, bounds: tuple[float, ...]) -> None:
    read = Observer("m").registry.get_sample_value
    labels = {"model_name": "m", "engine": "0"}
    for bound in bounds:
        assert read(f"{name}_bucket", {**labels, "le": str(float(bound))}) == 0.0, bound


def test_each_way_to_end_is_counted_from_zero() -> None:
    text = generate_latest(Observer("m").registry).decode()
    for reason in ("stop", "length", "abort"):
        assert (
            f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="m"}} 0.0' in text
        )

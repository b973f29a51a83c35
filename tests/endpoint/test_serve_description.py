"""The server against its own OpenAPI description: schemathesis makes requests from it, checks the answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import schemathesis
from endpoint_kit import Running, Start, wait_for
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks

from tutor.endpoint.ollama_schemas import RefusedOptions
from tutor.endpoint.openapi import OPERATIONS, describe
from tutor.endpoint.refused import RefusedFields

CHECKED = [
    schemathesis.checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_schema_conformance, checks.response_headers_conformance,
    checks.negative_data_rejection,
]  # fmt: skip
EXAMPLES = 12
CASES = [
    pytest.param(f"{operation.method.upper()} {operation.path}", mode, id=f"{operation.path}-{mode.value}")
    for operation in OPERATIONS
    for mode in GenerationMode
    if operation.body is not None or mode is GenerationMode.POSITIVE  # nothing to get wrong without a body
]


@pytest.fixture(scope="module")
def server(start: Start) -> Running:
    return start(blocks=8, max_waiting=4)  # answers end after 128 tokens at most


def test_every_route_is_described(server: Running) -> None:
    with server.client() as client:
        told = client.get("/openapi.json").json()
    assert told["openapi"] == "3.1.0"
    routes = {route.path.replace(":path", "") for route in server.server.app.routes}
    assert routes - {"/openapi.json"} == set(told["paths"])


def without(kind: type[msgspec.Struct], body: dict[str, Any]) -> dict[str, Any]:
    """The body without the fields that are refused whatever they ask for: few examples would be left."""
    return {name: value for name, value in body.items() if name not in kind.__struct_fields__}


def shortened(body: Any, path: str, model: str) -> Any:
    """A valid body, for the model that is there, that asks for a few tokens: hundreds of them are quick."""
    if not isinstance(body, dict) or "tokenize" in path:
        return body
    if path.startswith("/api/"):
        options = without(RefusedOptions, body.get("options") or {})
        return {**body, "model": model, "options": {**options, "num_predict": 2}}
    short = {**without(RefusedFields, body), "max_tokens": 2, "min_tokens": 0}
    return {**short, "max_completion_tokens": 2} if path.endswith("/chat/completions") else short


@pytest.mark.parametrize(("label", "mode"), CASES)
def test_answers_are_as_described(server: Running, label: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operation = next(o for o in (r.ok() for r in schema.get_all_operations()) if o.label == label)
    statuses: set[int] = set()

    @given(case=operation.as_strategy(mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    def check(case: Case) -> None:
        if mode is GenerationMode.POSITIVE:
            case.body = shortened(case.body, operation.path, server.server.service.model_name)
        answer = case.call()
        statuses.add(answer.status_code)
        case.validate_response(answer, checks=CHECKED)

    check()
    if operation.method == "post":
        assert (200 in statuses) == (mode is GenerationMode.POSITIVE)
    wait_for(server.is_empty)


def test_a_key_is_described_only_where_one_is_needed() -> None:
    assert b"securitySchemes" in describe("1", True) and b"securitySchemes" not in describe("1", False)

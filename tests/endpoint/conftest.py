"""A real server with the real model for each module that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from endpoint_kit import Running, Start, settings_for

from tutor.endpoint.server import ServerOptions


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Start servers; all are stopped after the module."""
    running: list[Running] = []

    def make(
        *, traced: bool = False, max_waiting: int = 64, api_key: str = "", grace: float = 0.5,
        hang_limit: float = 120.0, **more: object,
    ) -> Running:  # fmt: skip
        options = ServerOptions(
            port=0, max_waiting=max_waiting, api_key=api_key, grace=grace, hang_limit=hang_limit
        )
        server = Running(settings_for(**more), options, traced)  # type: ignore[arg-type]
        running.append(server)
        return server

    yield make
    for server in running:
        server.stop()

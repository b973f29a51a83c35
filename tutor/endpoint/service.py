"""What the handlers share: the engine's handle, the metrics, and the model's name."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from tutor.endpoint.engine_client import EngineClient
from tutor.endpoint.errors import unavailable
from tutor.endpoint.messages import ModelCard
from tutor.endpoint.observer import Observer


@dataclass(frozen=True)
class Service:
    """One server. `api_key` "" lets everybody in; `hosts` are the names that it may be called by, empty for
    any."""

    engine: EngineClient
    observer: Observer
    model_name: str
    version: str
    api_key: str = ""
    hosts: frozenset[str] = frozenset()

    @property
    def card(self) -> ModelCard:
        """Raises ApiError (503) while no engine has started yet."""
        if self.engine.card is None:
            raise unavailable("The engine is still loading.")
        return self.engine.card

    @property
    def fingerprint(self) -> str:
        """Changes when the same seed may give another text: with the model, the version or the mode."""
        card, settings = self.engine.card, self.engine.settings
        digest = card.digest[:8] if card is not None else "none"
        return f"tutor-{self.version}-{digest}-{settings.mode}-{settings.kv_type}"

    def knows(self, name: str) -> bool:
        """Is this the served model? Its file's name and Ollama's ":latest" are understood as well."""
        names = {self.model_name, self.engine.card.id if self.engine.card is not None else self.model_name}
        return name.removesuffix(":latest") in names


def service_of(request: HTTPConnection) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def arrival() -> float:
    """The clock that all times of a request are read from."""
    return time.perf_counter()

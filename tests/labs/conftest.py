"""One loaded model for all labs. A lab makes contexts of its own and leaves the weights as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tutor.llama.model import Model, find_model


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    with Model.load(find_model()) as loaded:
        yield loaded

"""The lab that docs/authoring.md shows is a whole one: taken from the page, it runs on the real model."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from lab_kit import last, record

from tutor.labs import registry
from tutor.llama.model import Model
from tutor.trace.views import LabView
from tutor.ui.widgets.panels import make_panel

PAGE = Path(__file__).resolve().parents[2] / "docs" / "authoring.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's lab, where its producer's dotted name says that it is."""
    made = ModuleType("tutor.labs.buffers")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setitem(registry._MODULES, "buffers", made.__name__)
    exec(compile(blocks()[0], str(PAGE), "exec"), made.__dict__)  # what an author would paste
    return made


def run(model: Model, kind_id: str, **given: object) -> LabView:
    view = last(record(model, kind_id, **given))
    assert all("cells" in line for line in registry.get_kind(kind_id).plain(view).splitlines()[1:])
    return view


def test_the_lab_of_the_page_runs_and_so_does_its_test(module: ModuleType, model: Model) -> None:
    names = {"run": run, "Model": Model}
    exec(compile(blocks()[1], str(PAGE), "exec"), names)
    names["test_contexts_come_in_steps_of_256"](model)
    view = run(model, "buffers", n_ctx=300)
    assert [buffer.num_cells for buffer in view.buffers] == [256, 512]
    gaps = [abs(buffer.measured_bytes - buffer.formula_bytes) for buffer in view.buffers]
    assert max(gaps) < 0.006 * 2**20  # the log has two decimals of a MiB
    for name in module.KIND.panels:
        assert make_panel(name).picture(view, 70).lines

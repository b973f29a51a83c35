"""Panels of the labs: each draws one part of a frozen LabView with the Line API."""

from __future__ import annotations

import importlib

from tutor.ui.widgets.panels.base import Panel

# name in LabKind.panels -> (module, class); a module is imported when a lab shows one of its panels
_PANELS = {
    "slots": ("serving", "SlotsPanel"),
    "blocks": ("blocks", "BlocksPanel"),
    "tables": ("blocks", "TablesPanel"),
    "cells": ("blocks", "CellsPanel"),
    "why": ("serving", "WhyPanel"),
    "queues": ("serving", "QueuesPanel"),
    "worth": ("mechanisms", "WorthPanel"),
    "memory": ("mechanisms", "MemoryPanel"),
    "pipeline": ("pipeline", "PipelinePanel"),
    "tokens": ("text", "TokensPanel"),
    "cost": ("characters", "CostPanel"),
    "merges": ("text", "MergesPanel"),
    "logits": ("numbers", "LogitsPanel"),
    "layers": ("numbers", "LayersPanel"),
    "tensors": ("numbers", "TensorsPanel"),
    "lanes": ("lanes", "LanesPanel"),
    "cache": ("lanes", "CachePanel"),
    "growth": ("lanes", "GrowthPanel"),
    "buffers": ("numbers", "BuffersPanel"),
    "filling": ("numbers", "FillingPanel"),
    "attention": ("attention", "AttentionPanel"),
    "reads": ("attention", "ReadsPanel"),
    "heads": ("attention", "HeadsPanel"),
    "distribution": ("sampling", "DistributionPanel"),
    "stages": ("sampling", "StagesPanel"),
    "streams": ("sampling", "StreamsPanel"),
    "timeline": ("phases", "TimelinePanel"),
    "phases": ("phases", "PhasesPanel"),
    "wire-openai": ("wire", "OpenAIPanel"),
    "wire-llama": ("wire", "LlamaPanel"),
    "wire-ollama": ("wire", "OllamaPanel"),
    "timings": ("wire", "TimingsPanel"),
    "compared": ("compared", "ComparedPanel"),
    "moves": ("compared", "MovesPanel"),
}


def panel_names() -> tuple[str, ...]:
    return tuple(_PANELS)


def make_panel(name: str) -> Panel:
    """The panel of that name. Raises KeyError for a name that no panel has."""
    module, class_name = _PANELS[name]
    panel = getattr(importlib.import_module(f"{__name__}.{module}"), class_name)()
    assert isinstance(panel, Panel)
    return panel

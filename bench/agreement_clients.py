"""Other public clients, asked for the same requests as `tutor bench`, and their own figures read back.

They get the very prompts of `tutor bench` in a file. What aiperf calls inter token latency and GuideLLM calls
ITL is (E2E - TTFT) / (n - 1), which `tutor bench` and `vllm bench serve` call TPOT; what GuideLLM calls TPOT
is E2E / n. aiperf's request latency ends with the last chunk that has content. Both take the token counts of
the server. They load a tokenizer all the same and count nothing with it: it is one that splits at spaces.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tutor.client.bench.lengths import parse_lengths
from tutor.client.bench.prepare import find_model_id, measure_ratio
from tutor.client.bench.stream import Target
from tutor.client.bench.workload import Load, Ratio, make_items
from tutor.client.http import make_client

COLUMNS = ("mean", "P50", "P90", "P95")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


class Figures(msgspec.Struct):
    """Milliseconds by row and column; `speed` is output tokens/s."""

    latencies: dict[str, dict[str, float]]
    speed: float
    failed: int


async def prompts(url: str, asked: Load) -> tuple[str, list[str]]:
    """The model's id and the prompts that `tutor bench` sends for this load."""
    async with make_client(url, None, 60.0) as client:
        model = await find_model_id(client)
        ratio = await measure_ratio(client, Target(model), asked)
    return model, [item.prompt for item in make_items(asked, ratio or Ratio())]


def load_of(requests: int, concurrency: int, prompt: int, answer: int, seed: int) -> Load:
    return Load(
        arrivals="closed", requests=requests, concurrency=concurrency, seed=seed, warmup=concurrency,
        input_tokens=parse_lengths(str(prompt)), output_tokens=parse_lengths(str(answer)),
    )  # fmt: skip


def run_aiperf(program: Path, url: str, asked: Load) -> Figures:
    """One run; the figures are those of the JSON file that it writes."""
    model, texts = asyncio.run(prompts(url, asked))
    extra = {"max_tokens": asked.output_tokens.longest, "ignore_eos": True, "temperature": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked_for = _write_lines(folder, [{"text": text} for text in texts])
        command = [
            str(program), "profile", "--model", model, "--url", url, "--endpoint-type", "chat", "--streaming",
            "--use-server-token-count", "--tokenizer", str(_tokenizer(folder)),
            "--input-file", str(asked_for),
            "--custom-dataset-type", "single_turn", "--dataset-sampling-strategy", "sequential",
            "--extra-inputs", json.dumps(extra), "--concurrency", str(asked.concurrency),
            "--request-count", str(asked.requests),
            "--workers-max", "1", "--record-processors", "1", "--no-server-metrics", "--no-gpu-telemetry",
            "--ui", "none", "--artifact-dir", str(folder / "out"),
        ]  # fmt: skip
        _run(command, folder)
        (found,) = (folder / "out").rglob("profile_export_aiperf.json")
        return _read_aiperf(json.loads(found.read_text()))


def run_guidellm(program: Path, url: str, asked: Load) -> Figures:
    """One run; the figures are those of the JSON file that it writes."""
    _, texts = asyncio.run(prompts(url, asked))
    answer = asked.output_tokens.longest
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked_for = _write_lines(folder, [{"prompt": text, "output_tokens_count": answer} for text in texts])
        report = folder / "report.json"
        command = [
            str(program), "run", "--backend", f"kind=openai_http,target={url}",
            "--profile", f"kind=concurrent,streams={asked.concurrency}",
            "--tokenizer", f"kind=hf_auto,model={_tokenizer(folder)}",
            "--data", f"kind=json_file,path={asked_for}",
            "--constraint", f"kind=max_requests,count={asked.requests}",
            "--output", f"kind=json,path={report}", "--disable-console-interactive",
        ]  # fmt: skip
        _run(command, folder, {**OFFLINE, "HF_HOME": name})
        (told,) = json.loads(report.read_text("utf-8"))["benchmarks"]
        return _read_guidellm(told)


def _write_lines(folder: Path, lines: list[dict[str, object]]) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _run(command: list[str], folder: Path, more: dict[str, str] | None = None) -> None:
    """`more` is added to the environment. SystemExit with its last words when it fails."""
    environment = {**os.environ, **(more or {})}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    if ran.returncode != 0:
        words = (ran.stdout + ran.stderr)[-2000:]
        raise SystemExit(f"{Path(command[0]).name} ended with {ran.returncode}: {words}")


def _tokenizer(folder: Path) -> Path:
    """A folder with the smallest tokenizer that the transformers library loads."""
    place = folder / "tokenizer"
    place.mkdir()
    model = {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
    (place / "tokenizer.json").write_text(
        json.dumps(
            {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
        )
    )
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    return place


def _read_aiperf(told: dict[str, dict[str, float]]) -> Figures:
    names = {"TTFT": "time_to_first_token", "TPOT": "inter_token_latency", "E2E": "request_latency"}
    keys = {"mean": "avg", "P50": "p50", "P90": "p90", "P95": "p95"}
    return Figures(
        {row: {column: told[name][key] for column, key in keys.items()} for row, name in names.items()},
        told["output_token_throughput"]["avg"],
        int(told.get("error_request_count", {}).get("avg", 0)),
    )


def _read_guidellm(told: dict[str, Any]) -> Figures:
    """Its ITL is (E2E - TTFT) / (n - 1) of a request, its TPOT is E2E / n, its latency is in seconds."""
    metrics = {
        name: spreads["successful"]
        for name, spreads in told["metrics"].items()
        if spreads and "successful" in spreads
    }
    names = {
        "TTFT": ("time_to_first_token_ms", 1),
        "TPOT": ("inter_token_latency_ms", 1),
        "E2E/n": ("time_per_output_token_ms", 1),
        "E2E": ("request_latency", 1000),
    }
    latencies = {}
    for row, (name, unit) in names.items():
        percentiles = {f"P{q}": metrics[name]["percentiles"][f"p{q}"] * unit for q in (50, 90, 95)}
        latencies[row] = {"mean": metrics[name]["mean"] * unit, **percentiles}
    requests = told["requests"]
    failed = len(requests["errored"]) + len(requests["incomplete"])
    return Figures(latencies, metrics["output_tokens_per_second"]["mean"], failed)


def read_tutor(told: dict[str, Any]) -> Figures:
    """From the JSON of `tutor bench`."""
    names = {"TTFT": "ttft", "TPOT": "tpot", "E2E/n": "e2e_per_token", "E2E": "e2el"}
    shown = told["tutor"]["confidence"]
    return Figures(
        {
            row: {column: shown[name][f"{column.lower()}_ms"]["value"] for column in COLUMNS}
            for row, name in names.items()
        },
        told["output_throughput"],
        told["failed"],
    )


CLIENTS = {"aiperf": run_aiperf, "guidellm": run_guidellm}

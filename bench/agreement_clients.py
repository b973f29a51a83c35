"""Other public clients, asked for the same requests as `tutor bench`, and their own figures read back.

aiperf gets the very prompts of `tutor bench` in a file. Its "inter token latency" is (E2E - TTFT) / (n - 1),
which `tutor bench` and `vllm bench serve` call TPOT; its request latency ends with the last chunk that has
content. It takes the token counts of the server. It loads a tokenizer all the same and counts nothing with
it, so it gets one that splits at spaces.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from pathlib import Path

import msgspec

from tutor.client.bench.lengths import parse_lengths
from tutor.client.bench.prepare import find_model_id, measure_ratio
from tutor.client.bench.stream import Target
from tutor.client.bench.workload import Load, Ratio, make_items
from tutor.client.http import make_client

ROWS = ("TTFT", "TPOT", "E2E")
COLUMNS = ("mean", "P50", "P90", "P95")


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
    answer = asked.output_tokens.longest
    extra = {"max_tokens": answer, "ignore_eos": True, "temperature": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / "prompts.jsonl").write_text(lines)
        command = [
            str(program), "profile", "--model", model, "--url", url, "--endpoint-type", "chat", "--streaming",
            "--use-server-token-count", "--tokenizer", str(_tokenizer(folder)),
            "--input-file", str(folder / "prompts.jsonl"),
            "--custom-dataset-type", "single_turn", "--dataset-sampling-strategy", "sequential",
            "--extra-inputs", json.dumps(extra), "--concurrency", str(asked.concurrency),
            "--request-count", str(asked.requests),
            "--workers-max", "1", "--record-processors", "1", "--no-server-metrics", "--no-gpu-telemetry",
            "--ui", "none", "--artifact-dir", str(folder / "out"),
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        found = list((folder / "out").rglob("profile_export_aiperf.json"))
        if ran.returncode != 0 or not found:
            raise SystemExit(f"aiperf ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}")
        return _read_aiperf(json.loads(found[0].read_text()))


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


def read_tutor(told: dict[str, object]) -> Figures:
    """From the JSON of `tutor bench`."""

    def number(key: str) -> float:
        value = told[key]
        assert isinstance(value, (int, float))
        return float(value)

    names = {"TTFT": "ttft", "TPOT": "tpot", "E2E": "e2el"}
    return Figures(
        {
            row: {column: number(f"{column.lower()}_{name}_ms") for column in COLUMNS}
            for row, name in names.items()
        },
        number("output_throughput"),
        int(number("failed")),
    )


CLIENTS = {"aiperf": run_aiperf}

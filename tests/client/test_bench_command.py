"""`tutor bench` from outside: its JSON, its exit codes, Ctrl-C, wrong arguments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from scripted_openai import Script, ScriptedServer

from tutor.cli.main import cli

# vllm/benchmarks/serve.py: the keys that `vllm bench serve --save-result` writes for every chat benchmark
VLLM_KEYS = {
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens",
    "total_output_tokens", "request_throughput", "request_goodput", "output_throughput",
    "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
    *(f"{figure}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el")
      for figure in ("mean", "median", "std", "p99")),
}  # fmt: skip
VLLM_LISTS = {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors", "start_times"}
SMALL = ["-n", "8", "-c", "2", "-i", "30", "-o", "4", "-w", "1", "--no-cache-probe"]


def tutor(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["bench", *arguments])


def test_json_has_the_keys_of_vllm(scripted: ScriptedServer, tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    result = tutor(
        scripted.url, *SMALL, "--json", "--details", "--save", str(saved), "--slo", "ttft=9000,tpot=900"
    )
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert set(answer) >= VLLM_KEYS | VLLM_LISTS
    assert answer["completed"] == 8 and answer["total_output_tokens"] == 32 == sum(answer["output_lens"])
    assert answer["request_goodput"] == pytest.approx(answer["request_throughput"])
    assert answer["mean_ttft_ms"] == pytest.approx(1e3 * sum(answer["ttfts"]) / 8)
    assert answer["mean_e2el_ms"] > answer["mean_ttft_ms"] > 25
    assert answer["tutor"]["definitions"]["tpot"].startswith("(E2E - TTFT) / (n - 1)")
    assert answer["tutor"]["confidence"]["ttft"]["p99_ms"]["high"] == answer["p99_ttft_ms"]
    assert json.loads(saved.read_text())["completed"] == 8


def test_failed_requests_are_exit_code_1(scripted: ScriptedServer) -> None:
    scripted.script = Script(behave=lambda n: "500" if n == 3 else "ok")
    result = tutor(scripted.url, *SMALL, "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["failed"] == 1


def test_nobody_there_is_exit_code_3() -> None:
    result = tutor("http://127.0.0.1:1", *SMALL)
    assert result.exit_code == 3 and "nothing answers" in result.output and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nonsense://x",), "is not an address"),
        (("x", "-i", "many"), "50-200 (uniform)"),
        (("x", "--slo", "speed=3"), "is not ttft=MS or tpot=MS"),
        (("x", "--slo", "ttft=-1"), "is not ttft=MS or tpot=MS"),
        (("x", "--percentiles", "50,101"), "at most 100"),
        (("x", "--percentiles", "fast"), "list of numbers"),
        (("x", "--rate", "0"), "0"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], sentence: str) -> None:
    result = tutor(*arguments)
    assert result.exit_code == 2 and sentence in result.output


def test_a_file_that_cannot_be_written(scripted: ScriptedServer, tmp_path: Path) -> None:
    result = tutor(scripted.url, *SMALL, "--save", str(tmp_path / "no" / "such" / "x.json"))
    assert result.exit_code == 3 and "Cannot write" in result.output


def test_ctrl_c_gives_the_partial_result(scripted: ScriptedServer) -> None:
    """The server hangs from the sixth answer on; Ctrl-C then ends the command with what it has."""
    scripted.script = Script(behave=lambda n: "hang" if n >= 6 else "ok")
    command = [sys.executable, "-m", "tutor", "bench", scripted.url, *SMALL, "-n", "40", "-w", "0", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    while scripted.script.in_flight < 2 or len(scripted.script.bodies) < 8:
        assert process.poll() is None, process.stderr and process.stderr.read()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    answer = json.loads(out)
    assert process.returncode == 130 and "Traceback" not in err
    assert (answer["completed"], answer["tutor"]["cut"], answer["tutor"]["never_sent"]) == (6, 2, 32)
    assert answer["tutor"]["interrupted"] and answer["tutor"]["findings"][0]["about"] == "interrupted"

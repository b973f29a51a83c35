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
    bounds = answer["tutor"]["confidence"]["ttft"]["p99_ms"]
    assert bounds["high"] is None and bounds["low"] <= bounds["value"] == answer["p99_ttft_ms"]
    assert answer["tutor"]["goodput_targets"] == {"ttft_ms": 9000, "tpot_ms": 900, "e2el_ms": None}
    assert json.loads(saved.read_text())["completed"] == 8


def test_json_with_other_percentiles_and_a_queue(scripted: ScriptedServer) -> None:
    """vLLM always writes the median; with a rate and a limit on those in flight, also the client's queue."""
    result = tutor(scripted.url, *SMALL, "--rate", "200", "--percentiles", "90,99.9", "--json")
    answer = json.loads(result.stdout)
    assert answer["median_ttft_ms"] > 25 and answer["p99.9_ttft_ms"] >= answer["p90_ttft_ms"]
    assert "p50_ttft_ms" not in answer
    assert answer["p90_client_queue_time_ms"] > 0
    assert answer["mean_e2el_including_client_queue_ms"] == pytest.approx(
        answer["mean_e2el_ms"] + answer["mean_client_queue_time_ms"]
    )
    one = json.loads(tutor(scripted.url, *SMALL, "-o", "1", "--json").stdout)
    assert [one[f"{x}_tpot_ms"] for x in ("mean", "median", "std", "p50", "p99")] == [None] * 5


def test_targets_as_vllm_writes_them(scripted: ScriptedServer) -> None:
    for targets, met in (("e2el:9000", 8), ("TTFT:9000,e2e=0.01", 0)):
        answer = json.loads(tutor(scripted.url, *SMALL, "--slo", targets, "--json").stdout)
        assert answer["request_goodput"] * answer["duration"] == pytest.approx(met)
    shown = tutor(scripted.url, *SMALL, "--slo", "tpot=900").stdout
    assert "requests/s meet TPOT 900 ms (100%)" in shown


def test_the_largest_value_is_a_percentile_too(scripted: ScriptedServer) -> None:
    result = tutor(scripted.url, *SMALL, "--percentiles", "p50,100")
    assert result.exit_code == 0 and "P100" in result.output


def test_failed_requests_are_exit_code_1(scripted: ScriptedServer) -> None:
    scripted.script = Script(behave=lambda n: "500" if n == 3 else "ok")
    result = tutor(scripted.url, *SMALL, "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["failed"] == 1


def test_a_key_from_a_file_may_end_with_a_line_end(scripted: ScriptedServer) -> None:
    assert tutor(scripted.url, *SMALL, "--api-key", "secret\n").exit_code == 0


def test_nobody_there_is_exit_code_3() -> None:
    result = tutor("http://127.0.0.1:1", *SMALL)
    assert result.exit_code == 3 and "nothing answers" in result.output and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nonsense://x",), "is not an address"),
        (("x", "-i", "many"), "50-200 (uniform)"),
        (("http://me:secret@x",), "--api-key"),
        (("8080",), "a port goes behind a host"),
        (("x", "-i", "9000000"), "goes beyond"),
        (("x", "-o", "50-"), "50-200 (uniform)"),
        (("x", "-n", "0"), "-n"),
        (("x", "-n", "2000000"), "1000000"),
        (("x", "--slo", "speed=3"), "is not ttft=MS, tpot=MS or e2e=MS"),
        (("x", "--slo", "ttft=-1"), "is not ttft=MS, tpot=MS or e2e=MS"),
        (("x", "--slo", "ttft"), "is not ttft=MS, tpot=MS or e2e=MS"),
        (("x", "--slo", "ttft=nan"), "is not ttft=MS, tpot=MS or e2e=MS"),
        (("x", "--slo", "ttft=inf"), "is not ttft=MS, tpot=MS or e2e=MS"),
        (("x", "--slo", ""), "is not ttft=MS, tpot=MS or e2e=MS"),
        (("x", "--slo", "e2e=1,e2el=2"), "two targets"),
        (("x", "--percentiles", "nan"), "at most 100"),
        (("x", "--percentiles", "50,"), "list of numbers"),
        (("x", "--rate", "inf"), "--concurrency"),
        (("x", "--rate", "nan"), "not a finite number"),
        (("x", "--duration", "nan"), "not a finite number"),
        (("x", "--shared", "nan"), "not a finite number"),
        (("x", "--timeout", "inf"), "not a finite number"),
        (("x", "--api-key", "schlüssel"), "ASCII"),
        (("x", "--api-key", "a\nb"), "ASCII"),
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
    assert not scripted.script.bodies  # said before the load, not after it


@pytest.mark.parametrize("reply", ["probe", "warm-up"])
def test_ctrl_c_in_the_preparation_ends_it(scripted: ScriptedServer, reply: str) -> None:
    """A request that is cut off there must not count as an answer: the load would begin."""
    scripted.script = Script(behave=lambda n: "hang")
    rest = ["-w", "0"] if reply == "probe" else ["-w", "1", "--shared", "0.5", "--no-cache-probe"]
    command = [sys.executable, "-m", "tutor", "bench", scripted.url, "-n", "4", "-i", "30", "-o", "4", *rest]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not scripted.script.in_flight:
        assert process.poll() is None, process.stderr and process.stderr.read()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == "" and "there is no result" in err
    assert len(scripted.script.bodies) == 1


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

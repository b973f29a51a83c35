"""Bounds of the histograms: all of vLLM's, so that its dashboards fit, and finer ones for a quick engine.

vLLM's: https://github.com/vllm-project/vllm/blob/main/vllm/v1/metrics/loggers.py. Its smallest bound of a
request's time is 0.3 s; a small model on a CPU is often done before.
"""

from __future__ import annotations


def _with(bounds: tuple[float, ...], *finer: float) -> tuple[float, ...]:
    return tuple(sorted({*bounds, *finer}))


VLLM_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
VLLM_GAPS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
VLLM_LATENCIES = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip
VLLM_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

SECONDS = _with(VLLM_TTFT, 0.15)
GAPS = _with(VLLM_GAPS, 0.005, 0.015, 0.02, 0.03, 0.04)
LATENCIES = _with(VLLM_LATENCIES, 0.05, 0.1)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
STEP_TOKENS = _with(VLLM_STEP_TOKENS, 2, 4)
SAMPLES = (1, 2, 5, 10, 20)
FEW = (0, 1, 2, 5)

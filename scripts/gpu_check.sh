#!/bin/sh
# For people whose llama-cpp-python was built for a GPU: scripts/gpu_check.sh [LAYERS]   (default -1: all)
# Asks the build, probes exactness with the layers on the GPU, then runs the lab of the whole engine on the
# CPU and on the GPU and says whether both wrote the same text. Exit codes: 0 same, 1 not, 3 no GPU build.
set -eu

layers=${1:--1}
python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" - "$layers" <<'END' || exit 3
import sys
from tutor.llama.errors import EngineError
from tutor.llama.model import Model, find_model
from tutor.llama.probe import probe
try:
    with Model.load(find_model(), int(sys.argv[1])) as model:
        found = probe(model)
        print(f"probe with n_gpu_layers {sys.argv[1]}: {found.summary} ({found.seconds:.2f} s)")
except EngineError as error:
    sys.exit(str(error))
END

for n in 0 "$layers"; do
  echo "== the whole engine, n_gpu_layers $n"
  "$python" -m tutor lab serving --headless --n-gpu-layers "$n" --trace "$work/$n.jsonl"
done

"$python" - "$work/0.jsonl" "$work/$layers.jsonl" <<'END'
import sys
from pathlib import Path
from tutor.trace.codec import read_trace
from tutor.trace.playback import Playback
views = [Playback(read_trace(Path(path))).view for path in sys.argv[1:]]
texts = [{request.label: request.text for request in view.serving.requests} for view in views]
seconds = [view.serving.mechanisms.seconds for view in views]
same = texts[0] == texts[1]
print(f"== same text: {same}; seconds in the engine {seconds[0]:.2f} (CPU), {seconds[1]:.2f} ({views[1].header.hardware})")
sys.exit(not same)
END

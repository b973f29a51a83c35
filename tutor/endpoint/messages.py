"""What the HTTP side and the engine process say to each other: JSON Lines both ways, one message a line.

Times are readings of `time.perf_counter`, which counts for the whole machine, so both sides can compare them.
"""

from __future__ import annotations

import msgspec

from tutor.llama.config import KvType, Mode
from tutor.serving.config import EngineConfig
from tutor.serving.sampling import SamplingParams
from tutor.trace.events import TraceHeader, TraceRecord


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The first line that the engine process reads.

    max_model_len: tokens of prompt and answer together, 0 for as many as the model and the cache allow.
    speculate: the longest draft of prompt lookup, 0 for none. trace: send every record of the trace.
    """

    engine: EngineConfig
    model: str | None = None
    mode: Mode = "shared"
    kv_type: KvType = "bf16"
    threads: int = 1
    adaptive_threads: bool = False
    max_model_len: int = 0
    speculate: int = 0
    trace: bool = False


# --- to the engine ------------------------------------------------------------------------------


class TextPrompt(msgspec.Struct, frozen=True, tag="text"):
    """Plain text; markup in it is spelled out, not obeyed, unless `special`."""

    text: str
    special: bool = False


class TokenPrompt(msgspec.Struct, frozen=True, tag="tokens"):
    token_ids: list[int]


class ChatPrompt(msgspec.Struct, frozen=True, tag="chat"):
    """(role, content) pairs for the model's chat template."""

    messages: list[tuple[str, str]]


Prompt = TextPrompt | TokenPrompt | ChatPrompt


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Queue `n` samples of one prompt; their ids are `sample_id(request_id, 0)` and so on.

    max_tokens None: as many as still fit. arrived_at: when the HTTP request was there.
    """

    request_id: str
    label: str
    prompt: Prompt
    max_tokens: int | None
    sampling: SamplingParams
    n: int
    arrived_at: float


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop those samples of a request that still run. `asked_at`: when the client was seen to be gone."""

    request_id: str
    n: int
    asked_at: float


class Tokenize(msgspec.Struct, frozen=True, tag=True):
    call_id: int
    prompt: Prompt


class Detokenize(msgspec.Struct, frozen=True, tag=True):
    call_id: int
    token_ids: list[int]


Command = Submit | Abort | Tokenize | Detokenize

# --- from the engine ----------------------------------------------------------------------------


class ModelCard(msgspec.Struct, frozen=True):
    """What the engine serves. `size` is the file's, in bytes; the digest is its SHA-256."""

    id: str
    name: str
    path: str
    size: int
    digest: str
    modified_at: float
    n_vocab: int
    n_ctx_train: int
    max_model_len: int
    architecture: str
    size_label: str
    file_type: int
    chat_template: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine can take requests; `load_seconds` is what loading took."""

    model: ModelCard
    header: TraceHeader
    load_seconds: float


class Accepted(msgspec.Struct, frozen=True, tag=True):
    request_id: str
    num_prompt_tokens: int
    max_tokens: int


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """A request that the engine cannot run. `code` is that of OpenAI's error object."""

    request_id: str
    code: str
    sentence: str
    param: str = ""


class TokenTold(msgspec.Struct, frozen=True, array_like=True):
    """A token with its bytes and its logprob (natural logarithm)."""

    token_id: int
    piece: bytes
    logprob: float


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    token: TokenTold
    top: list[TokenTold]


class Admitted(msgspec.Struct, frozen=True, array_like=True):
    """A sample got its slot at `at`, with the KV of `num_cached_tokens` already there."""

    at: float
    num_cached_tokens: int


class Output(msgspec.Struct, frozen=True, array_like=True):
    """What a step brought for one sample. `finish_reason` is "" while it goes on.

    `text` may be "" although there are tokens: half a character, or the beginning of a stop string.
    """

    request_id: str
    index: int
    num_tokens: int
    text: str
    finish_reason: str
    admitted: Admitted | None
    logprobs: list[TokenLogprobs]
    num_drafted: int = 0
    num_accepted: int = 0


class Stats(msgspec.Struct, frozen=True, array_like=True):
    """The engine after a step. Blocks, tokens and preemptions are counts since it started."""

    step: int
    num_running: int
    num_waiting: int
    num_used_blocks: int
    num_blocks: int
    num_preemptions: int
    prefix_queries: int
    prefix_hits: int
    num_drafts: int
    num_drafted: int
    num_accepted: int


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """One step: when it ended, its duration in seconds, the tokens it computed, and what came of it."""

    at: float
    duration: float
    num_tokens: int
    outputs: list[Output]
    stats: Stats


class Aborted(msgspec.Struct, frozen=True, tag=True):
    """The samples are gone and their blocks free at `at`, `num_steps` steps after the command came in."""

    request_id: str
    asked_at: float
    at: float
    num_steps: int
    stats: Stats


class Tokenized(msgspec.Struct, frozen=True, tag=True):
    call_id: int
    token_ids: list[int]
    pieces: list[bytes]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A call that cannot be answered."""

    call_id: int
    sentence: str


class Recorded(msgspec.Struct, frozen=True, tag=True):
    records: list[TraceRecord]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot go on; the process ends after this message."""

    sentence: str


Message = Ready | Accepted | Rejected | Stepped | Aborted | Tokenized | Refused | Recorded | Failed

_commands = msgspec.json.Decoder(Command)
_messages = msgspec.json.Decoder(Message)
_settings = msgspec.json.Decoder(Settings)


def sample_id(request_id: str, index: int) -> str:
    """The engine's id of a sample, as `Request.forks` makes them."""
    return f"{request_id}.{index}" if index else request_id


def encode(message: Command | Message | Settings) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode_command(line: bytes) -> Command:
    command: Command = _commands.decode(line)
    return command


def decode_message(line: bytes) -> Message:
    message: Message = _messages.decode(line)
    return message


def decode_settings(line: bytes) -> Settings:
    return _settings.decode(line)

"""The numbers of the lessons: pure functions that lesson text, quiz answers and labs share.

Units: tokens, bytes, seconds, FLOP; 1 GB = 1e9 bytes, 1 GiB = 2**30 bytes. Wrong arguments raise
ValueError with a sentence. Shapes are those of the models' published configs; every parameter total
is derived from the shape, never typed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

# --- models -----------------------------------------------------------------------------------


class ModelShape(msgspec.Struct, frozen=True):
    """The sizes of a Llama-style decoder. `hidden`, `ffn`, `head_dim` count elements."""

    name: str
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    ffn: int
    vocab: int
    tied: bool = False  # the output head reuses the embedding table
    qkv_bias: bool = False

    @property
    def params(self) -> int:
        """All parameters: tables, blocks and the final norm."""
        return embedding_params(self) + self.layers * block_params(self) + self.hidden


_MODELS = {
    "smollm2-135m": ModelShape("SmolLM2-135M", 30, 9, 3, 64, 576, 1536, 49152, tied=True),
    "llama-3.1-8b": ModelShape("Llama-3.1-8B", 32, 32, 8, 128, 4096, 14336, 128256),
    "llama-3.1-70b": ModelShape("Llama-3.1-70B", 80, 64, 8, 128, 8192, 28672, 128256),
    "qwen2.5-7b": ModelShape("Qwen2.5-7B", 28, 28, 4, 128, 3584, 18944, 152064, qkv_bias=True),
}


def model(name: str | ModelShape) -> ModelShape:
    """The shape of a model by its short name (a shape is passed through).

    Source: the models' config.json files on their publishers' pages.
    """
    if isinstance(name, ModelShape):
        return name
    if name not in _MODELS:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(_MODELS)}")
    return _MODELS[name]


# --- GPUs -------------------------------------------------------------------------------------


class Gpu(msgspec.Struct, frozen=True):
    """Datasheet figures: memory in bytes, bandwidth in bytes/s, dense bf16 FLOP/s."""

    name: str
    hbm_bytes: float
    bytes_per_second: float
    flops: float


_GPUS = {
    "a100": Gpu("A100-80 SXM", 80e9, 2.039e12, 312e12),
    "h100": Gpu("H100 SXM", 80e9, 3.35e12, 989.4e12),
    "h200": Gpu("H200 SXM", 141e9, 4.8e12, 989.4e12),
    "b200": Gpu("B200", 180e9, 7.7e12, 2250e12),
    "l4": Gpu("L4", 24e9, 0.3e12, 121e12),
}


def gpu(name: str | Gpu) -> Gpu:
    """A GPU by its short name. Source: NVIDIA datasheets, FLOP/s without sparsity."""
    if isinstance(name, Gpu):
        return name
    if name not in _GPUS:
        raise ValueError(f"unknown GPU {name!r}; known: {', '.join(_GPUS)}")
    return _GPUS[name]


# --- number formats ---------------------------------------------------------------------------

# KV type -> (elements a block, bytes a block). Source: ggml's block structs.
_TYPES = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
}


def type_bytes(kv_type: str, elements: int) -> int:
    """Bytes that `elements` numbers take in a ggml type; block types need whole blocks of 32."""
    if kv_type not in _TYPES:
        raise ValueError(f"unknown type {kv_type!r}; known: {', '.join(_TYPES)}")
    _natural("elements", elements)
    per_block, block = _TYPES[kv_type]
    if elements % per_block:
        raise ValueError(f"{kv_type} stores blocks of {per_block}; {elements} elements are not whole blocks")
    return elements // per_block * block


# --- KV cache ---------------------------------------------------------------------------------


def kv_bytes_per_token(model: str | ModelShape, type_k: str = "f16", type_v: str = "f16") -> int:
    """Bytes that one token leaves in the cache: layers x kv_heads x head_dim, once as K, once as V."""
    shape = _shape(model)
    row = shape.kv_heads * shape.head_dim
    return shape.layers * (type_bytes(type_k, row) + type_bytes(type_v, row))


def kv_bytes(
    model: str | ModelShape, tokens: int, type_k: str = "f16", type_v: str = "f16", seqs: int = 1
) -> int:
    """Bytes of KV cache for `seqs` sequences of `tokens` tokens each. Pads nothing."""
    _natural("tokens", tokens)
    _natural("seqs", seqs)
    return kv_bytes_per_token(model, type_k, type_v) * tokens * seqs


def padded_context(n_ctx: int) -> int:
    """Cells that llama.cpp allocates for a context of `n_ctx` tokens: rounded up to 256."""
    _natural("n_ctx", n_ctx)
    return -(-n_ctx // 256) * 256


def block_bytes(model: str | ModelShape, block_size: int) -> int:
    """Bytes of one paged KV block of `block_size` tokens at 16 bits an element."""
    return kv_bytes(model, _positive("block_size", block_size))


def num_blocks(tokens: int, block_size: int) -> int:
    """Blocks that `tokens` tokens occupy: the last one may be partly filled."""
    return -(-_natural("tokens", tokens) // _positive("block_size", block_size))


def tail_waste(tokens: int, block_size: int) -> int:
    """Token places left empty in the last block."""
    return num_blocks(tokens, block_size) * block_size - tokens


def mean_tail_waste(block_size: int) -> float:
    """Expected empty places in the last block when every tail length is equally likely."""
    return (_positive("block_size", block_size) - 1) / 2


def max_sequences(
    hbm_bytes: float,
    utilisation: float,
    weight_bytes: float,
    overhead_bytes: float,
    kv_bytes_per_token: float,
    ctx: int,
) -> int:
    """Whole sequences of `ctx` tokens whose KV fits beside the weights; 0 when nothing fits."""
    _positive("ctx", ctx)
    left = hbm_bytes * utilisation - weight_bytes - overhead_bytes
    return max(0, math.floor(left / (kv_bytes_per_token * ctx)))


# --- parameters and FLOPs ---------------------------------------------------------------------


def weight_bytes(model: str | ModelShape, bytes_per_param: float = 2.0) -> float:
    """Bytes of all weights at `bytes_per_param` (2.0 = bf16)."""
    return _shape(model).params * bytes_per_param


def embedding_params(model: str | ModelShape) -> int:
    """Parameters of the token tables: one if the head is tied to the embedding, else two."""
    shape = _shape(model)
    return shape.vocab * shape.hidden * (1 if shape.tied else 2)


def ffn_params(model: str | ModelShape) -> int:
    """Parameters of one block's SwiGLU: gate, up and down matrices."""
    shape = _shape(model)
    return 3 * shape.hidden * shape.ffn


def block_params(model: str | ModelShape) -> int:
    """Parameters of one block: Q, K, V, output, FFN, two norms, and Q/K/V biases where there are any."""
    shape = _shape(model)
    q_width = shape.q_heads * shape.head_dim
    kv_width = shape.kv_heads * shape.head_dim
    attention = 2 * shape.hidden * q_width + 2 * shape.hidden * kv_width
    bias = q_width + 2 * kv_width if shape.qkv_bias else 0
    return attention + ffn_params(shape) + 2 * shape.hidden + bias


def flops_per_token(model: str | ModelShape) -> int:
    """FLOP of one token's forward pass without attention scores: 2 per parameter used.

    The head counts (tied or not), the embedding lookup does not. Source: Kaplan et al. 2020.
    """
    shape = _shape(model)
    lookup = 0 if shape.tied else shape.vocab * shape.hidden
    return 2 * (shape.params - lookup)


def tokens_with_cache(p: int, n: int) -> int:
    """Tokens computed for `p` prompt and `n` output tokens with a KV cache: p + n - 1."""
    return _positive("p", p) + _positive("n", n) - 1


def tokens_without_cache(p: int, n: int) -> int:
    """The same without a cache: every step runs the whole text again, n*p + n(n-1)/2."""
    _positive("p", p)
    _positive("n", n)
    return n * p + n * (n - 1) // 2


# --- guards -----------------------------------------------------------------------------------


def _shape(name: str | ModelShape) -> ModelShape:
    # `model` is also the parameter name that lesson text uses, so the lookup needs a second name.
    return model(name)


def _natural(name: str, value: int) -> int:
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return value


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


# --- added by lessons: pure functions with a docstring and a source -------------------------------


def causal_scores(tokens: int, heads: int = 1) -> int:
    """Attention scores of one layer that the causal mask leaves: heads x T(T + 1)/2 for T tokens."""
    return heads * _positive("tokens", tokens) * (tokens + 1) // 2


def softmax(logits: Sequence[float], temperature: float = 1.0) -> tuple[float, ...]:
    """exp(z/T) / sum exp(z/T), sum 1. Temperature 0 gives all of it to the first of the largest."""
    if not logits or temperature < 0:
        raise ValueError("softmax needs a logit at least and a temperature that is not negative")
    peak = max(logits)
    if temperature == 0:
        return tuple(float(i == logits.index(peak)) for i in range(len(logits)))
    powers = [math.exp((z - peak) / temperature) for z in logits]
    return tuple(power / sum(powers) for power in powers)


def top_p_count(probs: Sequence[float], p: float) -> int:
    """Tokens that top-p keeps: the fewest likeliest whose sum reaches p, the crossing one included.

    Source: Holtzman et al. 2019.
    """
    total = 0.0
    for count, prob in enumerate(sorted(probs, reverse=True), start=1):
        total += prob
        if total >= p:
            return count
    return len(probs)


def min_p_count(probs: Sequence[float], m: float) -> int:
    """Tokens that min-p keeps: those with m times the largest probability or more.

    Source: Nguyen et al. 2024.
    """
    return sum(prob >= m * max(probs) for prob in probs)


def entropy_bits(probs: Sequence[float]) -> float:
    """Shannon's entropy, -sum p log2 p, in bits."""
    return -sum(prob * math.log2(prob) for prob in probs if prob > 0)

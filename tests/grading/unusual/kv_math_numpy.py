# exercise: kv-math
# unusual: NumPy scalars as answers, bit tricks for the padding, keyword arguments collected in a dict
import numpy as np


def kv_bytes(layers, kv_heads, head_dim, n_ctx, n_seq=1, type_k="f16", type_v="f16", unified=True):
    pad = lambda n: (n + 0xFF) & ~0xFF  # noqa: E731
    cells = pad(n_ctx)
    if not unified:
        cells = pad(cells // n_seq) * n_seq
    size = {"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q4_1": 20, "q4_0": 18}
    blocks = np.int64(kv_heads) * head_dim * layers * cells // 32
    return np.sum([blocks * size[kind] for kind in (type_k, type_v) if kind], dtype=np.int64)


def max_seqs(hbm, util, weights, overhead, kv_per_tok, ctx):
    left = np.float64(hbm) * util - (weights + overhead)
    return np.floor_divide(max(left, 0.0), np.float64(kv_per_tok) * ctx).astype(np.int32)

# exercise: kv-math
# unusual: exact fractions, bits a number instead of bytes a block, math.ceil
from fractions import Fraction
from math import ceil, floor

BITS = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": Fraction(17, 2), "q4_1": 5, "q4_0": Fraction(9, 2)}


def kv_bytes(layers, kv_heads, head_dim, n_ctx, n_seq=1, type_k="f16", type_v="f16", unified=True):
    cells = ceil(Fraction(n_ctx, 256)) * 256
    if not unified:
        cells = n_seq * 256 * ceil(Fraction(cells // n_seq, 256))
    bits = BITS[type_k] + (0 if type_v is None else BITS[type_v])
    return int(Fraction(layers * kv_heads * head_dim * cells * bits, 8))


def max_seqs(hbm, util, weights, overhead, kv_per_tok, ctx):
    left = Fraction(hbm) * Fraction(util) - Fraction(weights) - Fraction(overhead)
    return max(floor(left / (kv_per_tok * ctx)), 0)

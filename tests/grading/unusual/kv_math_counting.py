# exercise: kv-math
# unusual: recursion for the padding and over the types, floats as answers, users found by bisection

EACH = {None: 0.0, "f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32}


def up(n):
    return 0 if n <= 0 else 256 + up(n - 256) if n < 20_000 else 16_384 + up(n - 16_384)


def row(numbers, kinds):
    if not kinds:
        return 0.0
    kind, *others = kinds
    return numbers * EACH[kind] + row(numbers, others)


def kv_bytes(layers, kv_heads, head_dim, n_ctx, n_seq=1, type_k="f16", type_v="f16", unified=True):
    cells = up(n_ctx) if unified else sum(up(up(n_ctx) // n_seq) for _ in range(n_seq))
    return cells * layers * row(kv_heads * head_dim, [type_k, type_v])


def max_seqs(hbm, util, weights, overhead, kv_per_tok, ctx):
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        fits = middle * kv_per_tok * ctx <= hbm * util - weights - overhead
        low, high = (middle, high) if fits else (low, middle)
    return low

# exercise: forward
# unusual: RMSNorm in pure Python with exact sums, silu value by value with two branches, one row at a time
import math

import numpy as np


def rmsnorm(x, w, eps=1e-5):
    return np.array([list(norm_row(row, w.tolist(), eps)) for row in x.tolist()], dtype=np.float32)


def norm_row(row, gain, eps):
    root = math.sqrt(math.fsum(v * v for v in row) / len(row) + eps)
    yield from (v / root * g for v, g in zip(row, gain, strict=False))


def silu(z):
    if z >= 0:
        return z / (1.0 + math.exp(-z))
    return z * math.exp(z) / (1.0 + math.exp(z)) if z > -700 else -0.0


def swiglu(x, Wg, Wu, Wd):
    rows = []
    for row in x:
        gate = np.array([silu(z) for z in (Wg @ row).tolist()], dtype=np.float32)
        rows.append(Wd @ (gate * (Wu @ row)))
    return np.stack(rows).astype(np.float32)


def head(h, E):
    return np.fromiter((row @ h for row in E), dtype=np.float32, count=len(E))

# exercise: forward
# unusual: the gain as a diagonal matrix, gate and up in one product, the head as a one-column product
import numpy as np


def rmsnorm(x, w, eps=1e-5):
    square_mean = np.array([np.dot(row, row) / row.size for row in x])
    return (np.diag(1.0 / np.sqrt(square_mean + eps)) @ x @ np.diag(w)).astype(np.float32)


def swiglu(x, Wg, Wu, Wd):
    both = np.vstack([Wg, Wu]) @ x.T
    gate, up = both[: len(Wg)], both[len(Wg) :]
    with np.errstate(over="ignore"):
        silu = np.divide(gate, np.float32(1) + np.exp(np.negative(gate)))
    return np.ascontiguousarray((Wd @ np.multiply(silu, up)).T, dtype=np.float32)


def head(h, E):
    return np.matmul(E, h[:, None])[:, 0].astype(np.float32)

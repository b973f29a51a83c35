# exercise: forward
# unusual: recursion halves the tokens and the rows of the table; norms through np.linalg; expit with a clip
import numpy as np


def rmsnorm(x, w, eps=1e-5):
    if len(x) > 1:
        half = len(x) // 2
        return np.concatenate([rmsnorm(x[:half], w, eps), rmsnorm(x[half:], w, eps)])
    length = np.linalg.norm(x.astype(np.longdouble), axis=1, keepdims=True)
    return np.asarray(x / np.sqrt(length**2 / x.shape[1] + eps) * w, dtype=np.float32)


def swiglu(x, Wg, Wu, Wd):
    hidden = [
        half_block(x, gate, up)
        for gate, up in zip(np.array_split(Wg, 3), np.array_split(Wu, 3), strict=False)
    ]
    return np.float32(np.hstack(hidden) @ np.transpose(Wd))


def half_block(x, gate, up):
    z = x @ gate.T
    return z / (1 + np.exp(-np.clip(z, -80, 80))) * (x @ up.T)


def head(h, E):
    if len(E) <= 64:
        return np.sum(E * h, axis=1, dtype=np.float32)
    return np.append(head(h, E[: len(E) // 2]), head(h, E[len(E) // 2 :]))

# fails: swiglu
# says: You left the up projection out: multiply by it
"""Three pieces of the forward pass: RMSNorm, SwiGLU and the output head."""

import numpy as np


def rmsnorm(x, w, eps=1e-5):
    """Scale each row of `x` to root mean square 1, then multiply by the gain `w`."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    return (x / np.sqrt(mean_square + np.float32(eps)) * w).astype(np.float32)


def swiglu(x, Wg, Wu, Wd):
    """The feed-forward half of a block for the rows of `x`."""
    gate = x @ Wg.T
    # sigmoid(z) = (1 + tanh(z / 2)) / 2 never overflows
    silu = gate * np.float32(0.5) * (np.float32(1.0) + np.tanh(gate * np.float32(0.5)))
    return (silu @ Wd.T).astype(np.float32)


def head(h, E):
    """One logit for each row of `E`."""
    return (E @ h).astype(np.float32)

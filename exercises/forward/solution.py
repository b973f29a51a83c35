"""Three pieces of the forward pass: RMSNorm, SwiGLU and the output head.

Everything stays float32: the arrays are, and Python's own numbers do not widen them.
"""

import numpy as np


def rmsnorm(x, w, eps=1e-5):
    """Scale each row of `x` to root mean square 1, then multiply by the gain `w`."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + eps) * w


def swiglu(x, Wg, Wu, Wd):
    """The feed-forward half of a block for the rows of `x`."""
    gate = x @ Wg.T
    # sigmoid(z) = (1 + tanh(z / 2)) / 2 never overflows
    silu = gate * 0.5 * (1.0 + np.tanh(gate * 0.5))
    return (silu * (x @ Wu.T)) @ Wd.T


def head(h, E):
    """One logit for each row of `E`."""
    return E @ h

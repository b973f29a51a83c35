"""Three pieces of the forward pass: RMSNorm, SwiGLU and the output head.

T is the number of tokens. All arrays are float32, and so must be all results.
"""

import numpy as np


def rmsnorm(x, w, eps=1e-5):
    """Normalise each row.

    x: [T, 576], one row per token (unit: none)
    w: [576], the learned gain
    eps: added to the mean square, under the root

    Returns [T, 576]: each row divided by its root mean square, then multiplied by w.
    """
    raise NotImplementedError("divide each row by its root mean square, multiply by w")


def swiglu(x, Wg, Wu, Wd):
    """The feed-forward half of a block.

    x: [T, 576], already normalised
    Wg: [1536, 576], gate projection      (row i gives output i: g = Wg h)
    Wu: [1536, 576], up projection
    Wd: [576, 1536], down projection

    Returns [T, 576]: Wd (silu(Wg h) * (Wu h)) for each row h, with silu(z) = z / (1 + e^-z).
    It must stay finite for large inputs.
    """
    raise NotImplementedError("silu on the gate, times up, then down")


def head(h, E):
    """The output head.

    h: [576], the last hidden state, already normalised
    E: [V, 576], one row per id (the checks use some of the 49,152 rows, so V varies)

    Returns [V]: the logit of each id.
    """
    raise NotImplementedError("compare h with each row of E")

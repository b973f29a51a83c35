"""From logits to a token: the filters in llama.cpp's order, and a draw."""

import numpy as np


def _softmax(z):
    weights = np.exp(z - z.max())
    return weights / weights.sum()


def filter_probs(logits, temperature, top_k, top_p, min_p):
    """Probabilities after top-k, top-p, min-p and temperature, in this order."""
    z = logits.astype(np.float64)
    keep = np.argsort(-z, kind="stable")
    if top_k > 0:
        keep = keep[:top_k]
    if top_p < 1:
        sums = np.cumsum(_softmax(z[keep]))
        keep = keep[: np.searchsorted(sums, top_p) + 1]
    shares = _softmax(z[keep])
    keep = keep[shares >= min_p * shares[0]]
    probs = np.zeros(len(z))
    if temperature == 0:
        probs[keep[0]] = 1.0
    else:
        probs[keep] = _softmax(z[keep] / temperature)
    return probs


def draw(probs, u):
    """The token at u on the line of probabilities, the likeliest first."""
    order = np.argsort(-probs, kind="stable")
    order = order[probs[order] > 0]
    place = np.searchsorted(np.cumsum(probs[order]), u, side="right")
    return int(order[min(place, len(order) - 1)])

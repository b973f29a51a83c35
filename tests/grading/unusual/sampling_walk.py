# exercise: sampling
# unusual: generators walk from the likeliest token on and stop by themselves; draw eats up u
import math
from itertools import islice

import numpy as np


def walk(z):
    """(id, share) from the likeliest on; a stable sort of the reversed row keeps the lowest id first."""
    backwards = np.argsort(z[::-1], kind="stable")
    shares = np.exp(z - z.max())
    total = math.fsum(shares)
    for i in reversed(backwards):
        at = len(z) - 1 - int(i)
        yield at, float(shares[at]) / total


def until(pairs, enough):
    held = 0.0
    for at, share in pairs:
        yield at, share
        held += share
        if held >= enough:
            return


def renormalised(pairs):
    pairs = list(pairs)
    total = math.fsum(share for _, share in pairs)
    return [(at, share / total) for at, share in pairs]


def filter_probs(logits, temperature, top_k, top_p, min_p):
    z = np.float64(logits)
    left = walk(z)
    if top_k:
        left = renormalised(islice(left, top_k))
    if top_p < 1:
        left = until(left, top_p)
    left = list(left)
    ids = np.array([at for at, share in left if share >= min_p * left[0][1]])
    probs = np.zeros_like(z)
    if temperature == 0:
        probs[ids[0]] = 1
        return probs
    kept = z[ids] / temperature
    probs[ids] = np.exp(kept - np.logaddexp.reduce(kept))
    return probs


def draw(probs, u):
    last = None
    for at in sorted(range(len(probs)), key=lambda i: -probs[i]):
        if probs[at] == 0:
            break
        last = at
        u -= probs[at]
        if u < 0:
            break
    return last

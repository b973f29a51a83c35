# exercise: sampling
# unusual: no list of survivors: filters set logits to minus infinity by a mask; ranks, no order
import numpy as np


def probabilities(z):
    powers = np.exp(z - np.max(z))
    return powers / np.sum(powers)


def ranks(z):
    place = np.empty(len(z), dtype=int)
    place[np.argsort(-z, kind="mergesort")] = np.arange(len(z))
    return place


def filter_probs(logits, temperature, top_k, top_p, min_p):
    z = np.array(logits, dtype=np.float64)
    rank = ranks(z)
    if top_k > 0:
        z[rank >= top_k] = -np.inf
    if top_p < 1:
        p = probabilities(z)
        before = np.zeros(len(z))
        before[1:] = np.cumsum(np.sort(p)[::-1])[:-1]  # what the likelier ones hold
        z[before[rank] >= top_p] = -np.inf
    if min_p > 0:
        p = probabilities(z)
        z[p < min_p * p.max()] = -np.inf
    if temperature == 0:
        return (rank == 0).astype(np.float64)
    return probabilities(z / temperature)


def draw(probs, u):
    p = np.asarray(probs)
    place = ranks(p)
    ends = np.cumsum(np.sort(p)[::-1])[place]
    reached = (ends > u) & (p > 0)
    if reached.any():
        return int(min(np.flatnonzero(reached), key=lambda i: place[i]))
    return int(max(np.flatnonzero(p), key=lambda i: place[i]))

# exercise: sampling
# unusual: all in logarithms: running sums by logaddexp, thresholds as differences; draw counts
import numpy as np


def log_softmax(z):
    return z - z.max() - np.log(np.exp(z - z.max()).sum())


def filter_probs(logits, temperature, top_k, top_p, min_p):
    z = np.asarray(logits, dtype=np.float64)
    order = np.lexsort((np.arange(z.size), -z))
    if top_k:
        order = order[: min(top_k, z.size)]
    if top_p < 1:
        running = np.logaddexp.accumulate(log_softmax(z[order]))
        order = order[: 1 + np.count_nonzero(running < np.log(top_p))]
    if min_p:
        order = order[z[order] - z[order[0]] >= np.log(min_p)]
    if not temperature:
        order = order[:1]
    out = np.full(z.size, -np.inf)
    out[order] = log_softmax(z[order] / (temperature or 1))
    return np.exp(out)


def draw(probs, u):
    likely = sorted(np.flatnonzero(probs).tolist(), key=lambda i: (-probs[i], i))
    passed = int((np.cumsum(np.take(probs, likely)) <= u).sum())
    return likely[passed] if passed < len(likely) else likely[-1]

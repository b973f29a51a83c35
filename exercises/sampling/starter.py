"""From logits to a token: the filters in llama.cpp's order, and a draw."""

import numpy as np


def filter_probs(logits, temperature, top_k, top_p, min_p):
    """Probabilities after top-k, top-p, min-p and temperature, in this order.

    logits: float32 [V], one for each id; -inf is allowed, one of them at least is finite (unit: none)
    temperature: divides the logits that are left; 0 gives all probability to the likeliest token
    top_k: keep the k likeliest tokens; 0 is off, and k may be larger than V
    top_p: keep the fewest likeliest tokens that together hold top_p, the one that crosses it included; 1 is off
    min_p: keep tokens that are at least min_p times as likely as the likeliest; 0 is off

    Of equal logits the lowest id counts as likelier. Each filter works on the tokens that the one before
    left, with their probabilities renormalised, at temperature 1.

    Returns float64 [V] with sum 1; dropped tokens have 0.
    """
    raise NotImplementedError("filter, then divide by the temperature, then softmax")


def draw(probs, u):
    """The token that the number u picks.

    probs: float64 [V] with sum 1
    u: a number from 0 up to, but not including, 1

    Lay the probabilities end to end, the likeliest token first (of equals the lowest id). Returns the id (int)
    of the token in whose piece u lies: the first whose running sum is above u. Never one with probability 0.
    """
    raise NotImplementedError("running sums, then the first above u")

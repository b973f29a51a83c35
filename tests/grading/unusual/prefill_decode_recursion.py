# exercise: prefill-decode
# unusual: recursion over what is left of the request, exact fractions, generators where lists are asked for
from fractions import Fraction
from functools import reduce
from itertools import pairwise


def passes(engine, todo, position, known, n_new, n_batch):
    """Yields (phase, size, wanted, picked token or None) of each pass."""
    now, rest = todo[:n_batch], todo[n_batch:]
    want = [False] * (len(now) - 1) + [not rest]
    *_, token = engine.decode(now, [*range(position, position + len(now))], want)
    phase = "decode" if known else "prefill"
    yield phase, len(now), want.count(True), token
    if rest:
        yield from passes(engine, rest, position + len(now), known, n_new, n_batch)
    elif known + 1 < n_new:
        yield from passes(engine, [token], position + len(now), known + 1, n_new, n_batch)


def run(engine, prompt, n_new, n_batch):
    done = [*passes(engine, prompt, 0, 0, n_new, n_batch)]
    return (token for *_, token in done if token is not None), (each[:3] for each in done)


def split(arrived, started, chunks, num_prompt, num_cached):
    arrived, started = Fraction(arrived), Fraction(started)
    stamps = reduce(lambda done, chunk: done + [Fraction(chunk[0])] * chunk[1], chunks, [])
    answer = {"queue": float(started - arrived), "itl": (float(b - a) for a, b in pairwise(stamps))}
    answer |= dict.fromkeys(("ttft", "prefill_tps", "tpot", "decode_tps", "e2e"))
    if stamps:
        answer["ttft"], answer["e2e"] = float(stamps[0] - arrived), float(stamps[-1] - arrived)
        answer["prefill_tps"] = float((num_prompt - num_cached) / (stamps[0] - started))
    if len(stamps) > 1:
        answer["tpot"] = float((stamps[-1] - stamps[0]) / (len(stamps) - 1))
        answer["decode_tps"] = float((len(stamps) - 1) / (stamps[-1] - stamps[0]))
    return answer

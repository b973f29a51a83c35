# exercise: prefill-decode
# unusual: numpy arrays go to the engine and come back, times by diff and mean, a dict as the answer
import numpy as np


def run(engine, prompt, n_new, n_batch):
    ids, where, trace = np.asarray(prompt), np.arange(len(prompt)), []
    last = where == len(prompt) - 1
    for part in np.array_split(where, np.arange(n_batch, len(prompt), n_batch)):
        picked = engine.decode(ids[part], part, last[part])
        trace.append(("prefill", part.size, int(last[part].sum())))
    tokens = np.empty(n_new, dtype=np.int64)
    tokens[0] = picked[-1]
    for i in range(1, n_new):
        tokens[i] = engine.decode(tokens[i - 1 : i], np.array([len(prompt) + i - 1]), np.array([True]))[0]
        trace.append(("decode", 1, 1))
    return tokens, trace


def split(arrived, started, chunks, num_prompt, num_cached):
    answer = dict.fromkeys(("ttft", "prefill_tps", "tpot", "decode_tps", "e2e"))
    answer |= {"queue": started - arrived, "itl": np.empty(0)}
    if not chunks:
        return answer
    times, counts = np.array(chunks, dtype=np.float64).T
    stamps = np.repeat(times, counts.astype(int))
    gaps = np.diff(stamps)
    answer |= {"ttft": stamps.min() - arrived, "e2e": stamps.max() - arrived, "itl": gaps}
    answer["prefill_tps"] = (num_prompt - num_cached) / (stamps[0] - started)
    if gaps.size:
        answer |= {"tpot": gaps.mean(), "decode_tps": 1 / gaps.mean()}
    return answer

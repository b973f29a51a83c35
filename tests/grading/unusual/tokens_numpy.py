# exercise: tokens
# unusual: NumPy holds the cut positions and the rank at each of them; pieces are cut out at the end
import itertools

import numpy as np

NEVER = np.iinfo(np.int64).max


def bpe_encode(word, rank):
    cuts = np.arange(len(word) + 1)
    while len(cuts) > 2:
        edges = zip(cuts[:-2], cuts[1:-1], cuts[2:], strict=False)
        ranks = np.array([rank.get((word[a:b], word[b:c]), NEVER) for a, b, c in edges])
        if ranks.min() == NEVER:
            break
        cuts = np.delete(cuts, ranks.argmin() + 1)
    return tuple(word[a:b] for a, b in itertools.pairwise(cuts))


def decode(pieces):
    joined = bytearray()
    for piece in pieces:
        joined += piece
    return joined.decode("utf-8", "replace")

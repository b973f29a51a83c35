# exercise: tokens
# unusual: generators all the way; every occurrence of the best pair is joined in one sweep
import codecs
from itertools import pairwise


def bpe_encode(word, rank):
    pieces = [word[i : i + 1] for i in range(len(word))]
    while pairs := {pair for pair in pairwise(pieces) if pair in rank}:
        pieces = list(sweep(pieces, min(pairs, key=rank.get)))
    yield from pieces


def sweep(pieces, pair):
    waiting = iter(pieces)
    held = next(waiting)
    for piece in waiting:
        if (held, piece) == pair:
            yield held + piece
            held = next(waiting, None)
            if held is None:
                return
        else:
            yield held
            held = piece
    yield held


def decode(pieces):
    return "".join(codecs.iterdecode(iter(pieces), "utf-8", errors="replace"))

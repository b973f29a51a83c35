# fails: order of merges
# says: re-scan after each merge
"""Byte-level BPE: split one word into tokens, and turn tokens back into text."""

import itertools


def bpe_encode(word, rank):
    """Split `word` (bytes) into tokens by joining the lowest-rank neighbours first."""
    pieces = [word[i : i + 1] for i in range(len(word))]
    found = [pair for pair in itertools.pairwise(pieces) if pair in rank]
    for best in sorted(set(found), key=rank.get):
        merged = []
        while pieces:
            step = 2 if tuple(pieces[:2]) == best else 1
            merged.append(b"".join(pieces[:step]))
            pieces = pieces[step:]
        pieces = merged
    return pieces


def decode(pieces):
    """The text of a list of tokens (bytes); bytes that are no valid UTF-8 become U+FFFD."""
    return b"".join(pieces).decode("utf-8", errors="replace")

# fails: digits, spaces, signs, emoji and scripts
# says: merge bytes, not characters
"""Byte-level BPE: split one word into tokens, and turn tokens back into text."""

import itertools


def bpe_encode(word, rank):
    """Split `word` (bytes) into tokens by joining the lowest-rank neighbours first."""
    try:
        pieces = [letter.encode() for letter in word.decode()]
    except UnicodeDecodeError:
        pieces = [word[i : i + 1] for i in range(len(word))]
    while ranked := [(rank[pair], i) for i, pair in enumerate(itertools.pairwise(pieces)) if pair in rank]:
        _, i = min(ranked)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces


def decode(pieces):
    """The text of a list of tokens (bytes); bytes that are no valid UTF-8 become U+FFFD."""
    return b"".join(pieces).decode("utf-8", errors="replace")

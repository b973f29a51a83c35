"""Byte-level BPE: split one word into tokens, and turn tokens back into text."""


def bpe_encode(word, rank):
    """Split one word into tokens.

    word: bytes, for example b" hello". It may be empty.
    rank: dict (left: bytes, right: bytes) -> int. A pair that is in it may be joined; a lower
        rank goes first. It holds the merges of SmolLM2 that can matter for this word, and others.

    Start from single bytes. As long as some two neighbours are in `rank`, join the pair with the
    lowest rank (the leftmost of them, if that pair occurs twice), one join at a time.

    Returns a list of bytes. Joined, they are `word` again; b"" gives [].
    """
    raise NotImplementedError("start from single bytes, join the lowest-rank pair, repeat")


def decode(pieces):
    """Turn tokens back into text.

    pieces: list of bytes. A piece may begin or end in the middle of a character.

    Returns a str. Bytes that are not valid UTF-8, such as a character that was cut at the end,
    become U+FFFD (what bytes.decode does with errors="replace").
    """
    raise NotImplementedError("bytes first, text last")

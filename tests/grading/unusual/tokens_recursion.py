# exercise: tokens
# unusual: recursion over tuples, nothing is changed in place; text decoded by hand from code points


def bpe_encode(word, rank):
    return join(tuple(word[i : i + 1] for i in range(len(word))), rank)


def join(pieces, rank):
    best = min(range(len(pieces) - 1), key=lambda i: rank.get(pieces[i : i + 2], 1 << 60), default=None)
    if best is None or pieces[best : best + 2] not in rank:
        return pieces
    return join((*pieces[:best], pieces[best] + pieces[best + 1], *pieces[best + 2 :]), rank)


def decode(pieces):
    data = bytes(value for piece in pieces for value in piece)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        good = data[: error.start].decode()
        return good + "\N{REPLACEMENT CHARACTER}" + decode([data[error.end :]])

# exercise: tokens
# unusual: a heap of candidate pairs over a linked list; stale entries are skipped when they come up
import heapq


def bpe_encode(word, rank):
    piece = [bytes((value,)) for value in word]
    after, before = list(range(1, len(piece) + 1)), list(range(-1, len(piece) - 1))
    heap = []

    def offer(left):
        right = after[left] if left >= 0 else len(piece)
        if right < len(piece) and (piece[left], piece[right]) in rank:
            heapq.heappush(heap, (rank[piece[left], piece[right]], left, piece[left], piece[right]))

    for place in range(len(piece)):
        offer(place)
    while heap:
        _, left, first, second = heapq.heappop(heap)
        right = after[left]
        if right >= len(piece) or piece[left] != first or piece[right] != second:
            continue
        piece[left], piece[right] = first + second, b""
        after[left] = after[right]
        if after[left] < len(piece):
            before[after[left]] = left
        offer(before[left])
        offer(left)
    return [part for part in piece if part]


def decode(pieces):
    return str(b"".join(pieces), encoding="utf-8", errors="replace")

# exercise: request
# unusual: recursion over the answer so far, a pure Python argmax, a plain dict as the answer
from itertools import chain


def best(scores):
    return max(range(len(scores)), key=scores.__getitem__)


def cut(data, stop):
    places = sorted(data.index(s.encode()) for s in stop if s.encode() in data)
    return data[: places[0]] if places else None


def answer(lm, prompt, ids, data, left, stop):
    if left == 0:
        return ids, data, "length"
    token = best(lm.next_logits(prompt + ids).tolist())
    if lm.is_eog(token):
        return [*ids, token], data, "stop"
    longer = data + lm.piece(token)
    short = cut(longer, stop)
    if short is not None:
        return [*ids, token], short, "stop"
    return answer(lm, prompt, [*ids, token], longer, left - 1, stop)


def generate(lm, messages, max_tokens, stop=()):
    prompt = [*chain(*(lm.tokenize(text, special=markup) for text, markup in lm.template(messages)))]
    ids, data, reason = answer(lm, prompt, [], b"", max_tokens, stop)
    return {
        "text": str(data, "utf-8", "replace"),
        "ids": ids,
        "finish_reason": reason,
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids),
    }

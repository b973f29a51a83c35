# exercise: request
# unusual: a generator draws the ids, an incremental decoder makes the text, NumPy arrays hold all ids
import codecs
from dataclasses import dataclass

import numpy as np


@dataclass
class Completion:
    text: str
    ids: np.ndarray
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


def draw(lm, prompt):
    ids = np.asarray(prompt, dtype=np.int32)
    while True:
        token = np.argsort(-lm.next_logits(ids), kind="stable")[0]
        yield token
        ids = np.append(ids, np.int32(token))


def generate(lm, messages, max_tokens, stop=()):
    prompt = [i for text, markup in lm.template(messages) for i in lm.tokenize(text, markup)]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    ids, text, reason = [], "", "length"
    tokens = draw(lm, prompt)
    for _ in range(max_tokens):
        token = next(tokens)
        ids.append(token)
        if lm.is_eog(int(token)):
            reason = "stop"
            break
        text += decoder.decode(lm.piece(int(token)))
        found = [place for place in map(text.find, stop) if place >= 0]
        if found:
            text, reason = text[: min(found)], "stop"
            decoder.reset()
            break
    text += decoder.decode(b"", final=True)
    return Completion(text, np.array(ids, dtype=np.int64), reason, len(prompt), len(ids))

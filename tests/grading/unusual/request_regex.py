# exercise: request
# unusual: stop strings as one regular expression over the bytes; ids kept in a deque; fields on an object
import re
from collections import deque


class Answer:
    pass


def generate(lm, messages, max_tokens, stop=()):
    prompt = deque()
    for text, markup in lm.template(messages):
        prompt.extend(lm.tokenize(text, markup))
    pattern = re.compile(b"|".join(re.escape(s.encode()) for s in stop)) if stop else None
    out = Answer()
    out.ids, out.finish_reason, data = deque(), "length", bytearray()
    for _ in range(max_tokens):
        out.ids.append(lm.next_logits([*prompt, *out.ids]).argmax())
        if lm.is_eog(out.ids[-1]):
            out.finish_reason = "stop"
            break
        data += lm.piece(out.ids[-1])
        match = pattern.search(data) if pattern else None
        if match:
            del data[match.start() :]
            out.finish_reason = "stop"
            break
    out.text = data.decode(errors="replace")
    out.prompt_tokens, out.completion_tokens = len(prompt), len(out.ids)
    return out

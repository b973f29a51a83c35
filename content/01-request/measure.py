"""Facts of this lesson, measured on the bundled model (exact mode, greedy)."""

from __future__ import annotations

import textwrap
from typing import Any

from tutor.llama.reference import ReferenceModel

MARKER = "<|im_end|>"
WIDTH = 68  # columns
USER_TURN = "<|im_start|>user"
TRANSLATE = "Translate 'good morning' to Chinese."
COUNT = "Count from 1 to 5."


def measure(model: ReferenceModel) -> dict[str, Any]:
    """Token counts of `hi`, of the marker, of a line break, and the bytes of a split character."""
    parts = model.chat_parts([{"role": "user", "content": "hi"}])
    text = "".join(part for part, _ in parts)
    prompt = _prompt_ids(model, "hi")
    answer = model.greedy(prompt, 64)
    shown = [token for token in answer if not model.is_eog(token)]
    return {
        "template_lines": [part for line in text.splitlines() for part in _fitted(line)],
        "hi_tokens": len(model.tokenize("hi")),
        "prompt_tokens": len(prompt),
        "system_tokens": len(model.tokenize(text[: text.index(USER_TURN)], special=True)),
        "marker_special_tokens": len(model.tokenize(MARKER, special=True)),
        "marker_plain_tokens": len(model.tokenize(MARKER)),
        "answer_text": b"".join(model.piece(token) for token in shown).decode("utf-8"),
        "answer_tokens": len(answer),
        "split_pieces": _first_character(model, TRANSLATE),
        "newlines_as_text": len(model.tokenize("\n\n")),
        "newlines_as_output": _blank_line_tokens(model, COUNT),
    }


def _fitted(line: str) -> list[str]:
    """A line of the template, broken where it is too long for a terminal; what follows is indented."""
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ")


def _prompt_ids(model: ReferenceModel, question: str) -> list[int]:
    parts = model.chat_parts([{"role": "user", "content": question}])
    return [token for text, is_markup in parts for token in model.tokenize(text, special=is_markup)]


def _first_character(model: ReferenceModel, question: str) -> list[str]:
    """The pieces, in hex, that spell the first character of the answer."""
    pieces: list[bytes] = []
    for token in model.greedy(_prompt_ids(model, question), 8):
        pieces.append(model.piece(token))
        try:
            b"".join(pieces).decode("utf-8")
        except UnicodeDecodeError:
            continue
        break
    return [piece.hex() for piece in pieces]


def _blank_line_tokens(model: ReferenceModel, question: str) -> int:
    """How many tokens the answer spends on its first blank line (two line breaks in a row)."""
    pieces = [model.piece(token) for token in model.greedy(_prompt_ids(model, question), 60)]
    ends = [sum(map(len, pieces[: index + 1])) for index in range(len(pieces))]
    start = b"".join(pieces).index(b"\n\n")
    return sum(end > start and begin < start + 2 for begin, end in zip([0, *ends[:-1]], ends, strict=True))

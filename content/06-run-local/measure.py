"""Facts of this lesson: one answer of the bundled model, counted in tokens and in bytes on the wire."""

from __future__ import annotations

from typing import Any

from tutor.labs.dialects import Wire, piece_text
from tutor.llama.reference import ReferenceModel

QUESTION = "Name three colors."
WIRE = Wire(call=1, model="smollm2", created=1_800_000_000)  # an answer of 2027; the length is the same
WIDTH = 66  # columns
LIMIT = 40


def measure(model: ReferenceModel) -> dict[str, Any]:
    """Tokens of question and answer, bytes of its frames, the size of the model file."""
    prompt = model.chat_ids([{"role": "user", "content": QUESTION}])
    answer = model.greedy(prompt, LIMIT)
    pieces = [model.piece(token).decode("utf-8") for token in answer if not model.is_eog(token)]
    text = "".join(pieces)
    return {
        "question": QUESTION,
        "answer": text,
        "prompt_tokens": len(prompt),
        "completion_tokens": len(answer),
        "text_bytes": len(text.encode()),
        "sse_bytes": _frame_bytes("openai", pieces),
        "ndjson_bytes": _frame_bytes("ollama", pieces),
        "sse_lines": _fitted(piece_text("openai", WIRE, pieces[1])),
        "ndjson_lines": _fitted(piece_text("ollama", WIRE, pieces[1])),
        "file_bytes": model.path.stat().st_size,
    }


def _frame_bytes(dialect: str, pieces: list[str]) -> int:
    """All frames that carry text, as bytes."""
    return sum(len(piece_text(dialect, WIRE, piece).encode()) for piece in pieces)


def _fitted(frame: str) -> list[str]:
    """A frame, broken where it is too long for a terminal."""
    text = frame.strip()
    return [text[at : at + WIDTH] for at in range(0, len(text), WIDTH)]

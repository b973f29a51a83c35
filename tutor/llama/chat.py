"""The chat template of a model, rendered into parts that say what is markup and what somebody wrote.

Only markup may become special tokens: a user who types `<|im_end|>` must not close a turn. So the template is
rendered with placeholders in place of the contents, and split at them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tutor.llama.errors import EngineMisuse

Part = tuple[str, bool]
# Private-use characters: no template holds them, and contents are put in after the split.
PLACEHOLDER = "\ue000{}\ue001"
SPLIT = re.compile("\ue000(\\d+)\ue001")


def chat_parts(template: str, messages: Sequence[Mapping[str, str]], *, bos: str, eos: str) -> list[Part]:
    """Return (text, is_markup) parts; joined, the texts are the rendered prompt, ready for an answer.

    A message has the keys "role" and "content". The default system prompt of a template counts as markup.
    Raises EngineMisuse for messages that are malformed, or that the template refuses.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    if not messages:
        raise EngineMisuse("A chat needs one message at least.", 'Pass {"role": "user", "content": …}.')
    for message in messages:
        if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            raise EngineMisuse("A message needs a role and a content, both text.", "Add what is missing.")
    marked = [
        {**message, "content": PLACEHOLDER.format(index)} if message["content"] else dict(message)
        for index, message in enumerate(messages)
    ]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    try:
        rendered = environment.from_string(template).render(
            messages=marked, add_generation_prompt=True, bos_token=bos, eos_token=eos
        )
    except TemplateError as error:
        raise EngineMisuse(f"The model's chat template fails: {error}.", "Check the messages.") from error
    return _split(rendered, messages)


def _refuse(reason: str) -> str:
    raise EngineMisuse(f"The model's chat template refuses the messages: {reason}.", "Change the messages.")


def _split(rendered: str, messages: Sequence[Mapping[str, str]]) -> list[Part]:
    """Markup and placeholder numbers alternate in what re.split returns."""
    pieces = SPLIT.split(rendered)
    parts = [
        (messages[int(piece)]["content"], False) if index % 2 else (piece, True)
        for index, piece in enumerate(pieces)
    ]
    return [(text, markup) for text, markup in parts if text]

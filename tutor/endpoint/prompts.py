"""From what a client sent to requests of the serving core: tokens, room in the context, samples."""

from __future__ import annotations

from tutor.endpoint import messages as msg
from tutor.llama.engine import LlamaEngine
from tutor.llama.errors import EngineMisuse
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.serving.request import Request


class PromptTooLong(Exception):
    """Prompt and answer do not fit the context; the message is a sentence with the numbers."""


class Prompts:
    """Makes requests. `max_model_len`: tokens of prompt and answer together that a request may have."""

    def __init__(self, model: Model, engine: LlamaEngine, settings: msg.Settings) -> None:
        self._model = model
        self._reference = ReferenceModel(model)
        self._engine = engine
        config = settings.engine
        room = config.num_blocks * config.block_size
        self.max_model_len = min(room, model.dims.n_ctx_train, settings.max_model_len or room)

    def token_ids(self, prompt: msg.Prompt) -> list[int]:
        """Raises EngineMisuse for ids outside the vocabulary and chats that the template refuses."""
        match prompt:
            case msg.TextPrompt(text, special):
                return self._model.tokenize(text, special)
            case msg.ChatPrompt(messages):
                return self._reference.chat_ids([{"role": r, "content": c} for r, c in messages])
            case msg.TokenPrompt(token_ids):
                for token in token_ids:
                    self._model.piece(token)  # raises for an unknown id
                return token_ids

    def requests(self, submit: msg.Submit) -> list[Request]:
        """The samples of a prompt. Raises PromptTooLong, EngineMisuse or ConfigError."""
        submit.sampling.check()
        ids = self.token_ids(submit.prompt) or self._empty()
        room = self.max_model_len - len(ids)
        count = submit.max_tokens if submit.max_tokens is not None else max(1, room)
        if count > room:
            raise PromptTooLong(
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested "
                f"{len(ids) + count} tokens ({len(ids)} in the prompt, {count} for the answer)."
            )
        shown = submit.prompt.text if isinstance(submit.prompt, msg.TextPrompt) else self._text(ids)
        first = self._engine.request(
            submit.request_id, submit.label, ids, count, prompt=shown, sampling=submit.sampling
        )
        return first.forks(submit.n)

    def _empty(self) -> list[int]:
        """An empty text still needs a token to start from: the one that begins texts."""
        if self._model.bos < 0:
            raise EngineMisuse("The prompt is empty.", "Send a text.")
        return [self._model.bos]

    def _text(self, ids: list[int]) -> str:
        return self._model.detokenize(ids).decode("utf-8", "replace")

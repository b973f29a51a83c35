"""Fields of other servers that would change the answer, and that this server does not have.

To ignore them would hand out another answer than the one asked for, so they are refused by name. A value that
switches the thing off is fine, since clients send their whole form. Names: OpenAI's API reference; vLLM's
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html; llama-server's
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
"""

from __future__ import annotations

import msgspec

from tutor.endpoint.errors import ApiError, bad_request

OFF: tuple[object, ...] = (False, 0, "", [], {})
HARMLESS: dict[str, tuple[object, ...]] = {
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "modalities": (["text"], []),
    "skip_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "typical_p": (1,),
}


class RefusedFields(msgspec.Struct, frozen=True, kw_only=True):
    """Constrained texts, other ends, other samplers, cut prompts, tools, sounds, other templates."""

    grammar: object = None
    json_schema: object = None
    structured_outputs: object = None
    guided_json: object = None
    guided_regex: object = None
    guided_choice: object = None
    guided_grammar: object = None
    stop_token_ids: object = None
    include_stop_str_in_output: object = None
    skip_special_tokens: object = None
    bad_words: object = None
    allowed_token_ids: object = None
    prompt_logprobs: object = None
    truncate_prompt_tokens: object = None
    use_beam_search: object = None
    typical_p: object = None
    mirostat: object = None
    xtc_probability: object = None
    dry_multiplier: object = None
    tool_choice: object = None
    functions: object = None
    function_call: object = None
    modalities: object = None
    audio: object = None
    chat_template: object = None
    add_generation_prompt: object = None
    continue_final_message: object = None
    echo: object = None


def unsupported(what: str, param: str) -> ApiError:
    return bad_request(f"{what} is not supported by this server.", param, "unsupported_parameter")


def refuse(request: msgspec.Struct, kind: type[msgspec.Struct]) -> None:
    """Raises ApiError (400) for the first field of `kind` that asks for something."""
    for name in kind.__struct_fields__:
        value = getattr(request, name)
        if value is not None and value not in HARMLESS.get(name, OFF):
            raise unsupported(name, name)

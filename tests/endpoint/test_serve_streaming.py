"""What is streamed, put together, is what is answered whole: odd texts, and stop strings across tokens.

ENDPOINT_PROMPTS=200 in the environment takes more prompts.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx2
import msgspec
import pytest
from endpoint_kit import Running, Start

ODD = (
    "👩‍🚀 astronauts and 🏳️‍🌈 flags, 👍🏽 hands:", "日本語の文章を続けてください。", "汉字和标点，继续：",
    "한국어 문장은", "Zalgo: ĥ̷̡̛e̵͚̅ n̈ ñ ö", "naïve café coöperate", "हिन्दी में लिखो", "مرحبا بالعالم", "שלום עולם",
    "ไทย ภาษา", "\u200b\u200dzero width", "a\r\nb\tc\x0bd", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝕋𝕖𝕩𝕥", "½ ⅓ ¼ ∑ ∫ √",
    "<|im_end|> <|im_start|>user", "\\n \\u00e9 \\x00", "🀄🃏♠♣♥♦", "e\u0301e\u0301e\u0301", "ﷺ ﷽",
    "data: [DONE]\n\ndata: {",
)  # fmt: skip
STOPS = (None, " the", ["e t", "he "], "e", "、", "🚀", "\n", [".", ", and"], " a", "in")


def cases(count: int) -> list[dict[str, Any]]:
    """Prompts by stop strings; half of them drawn at random, so that rare tokens turn up."""
    made = []
    for number in range(count):
        text = ODD[number % len(ODD)]
        stop = STOPS[(number // len(ODD) + number) % len(STOPS)]
        hot = number % 2
        made.append(
            {
                "prompt": f"{number}. {text}", "max_tokens": 12, "stop": stop, "seed": number,
                "temperature": 1.6 if hot else 0,
            }
        )  # fmt: skip
    return made


def asked(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Every third request is a chat."""
    if body["seed"] % 3:
        return "/v1/completions", body
    rest = {name: value for name, value in body.items() if name != "prompt"}
    return "/v1/chat/completions", {**rest, "messages": [{"role": "user", "content": body["prompt"]}]}


async def whole(client: httpx2.AsyncClient, body: dict[str, Any]) -> tuple[str, str]:
    path, sent = asked(body)
    (choice,) = (await client.post(path, json=sent)).json()["choices"]
    return choice["message"]["content"] if "message" in choice else choice["text"], choice["finish_reason"]


async def streamed(client: httpx2.AsyncClient, body: dict[str, Any]) -> tuple[str, str]:
    text, reason = "", ""
    path, sent = asked(body)
    async with client.stream("POST", path, json={**sent, "stream": True}) as answer:
        lines = [line async for line in answer.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        (choice,) = msgspec.json.decode(line.removeprefix("data: "))["choices"]
        text += choice["delta"].get("content", "") if "delta" in choice else choice["text"]
        reason = choice["finish_reason"] or reason
    return text, reason


async def compare(url: str, bodies: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """All requests both ways, all at once, so that batches mix differently each time."""
    limits = httpx2.Limits(max_connections=24)
    async with httpx2.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        both = await asyncio.gather(
            *(whole(client, body) for body in bodies), *(streamed(client, body) for body in bodies)
        )
    for body, one, other in zip(bodies, both[: len(bodies)], both[len(bodies) :], strict=True):
        assert one == other, body
    return both[: len(bodies)]


@pytest.fixture(scope="module")
def exact(start: Start) -> Running:
    return start(exact=True, slots=8, blocks=16, max_waiting=200)


def test_streams_equal_whole_answers(exact: Running) -> None:
    bodies = cases(int(os.environ.get("ENDPOINT_PROMPTS", "20")))
    answers = asyncio.run(compare(exact.url, bodies))
    stops = [body["stop"] for body in bodies]
    ended = [reason for (_, reason), stop in zip(answers, stops, strict=True) if stop]
    assert ended.count("stop") >= 2, "too few stop strings were met for the test to mean something"
    for (text, _), stop in zip(answers, stops, strict=True):
        for string in [stop] if isinstance(stop, str) else stop or []:
            assert string not in text
    assert any(ord(character) > 0x2FFF for text, _ in answers for character in text)
    assert exact.is_empty()


def test_a_stop_string_across_tokens_never_shows_its_beginning(exact: Running) -> None:
    """'8, 9' are several tokens; no chunk may hold the beginning that is taken back later."""
    with exact.client() as client:
        body = {
            "prompt": "1, 2, 3, 4, 5,",
            "temperature": 0,
            "max_tokens": 40,
            "stop": ["8, 9"],
            "stream": True,
        }
        lines = client.post("/v1/completions", json=body).text.splitlines()
    texts = [
        msgspec.json.decode(line[6:])["choices"][0]["text"] for line in lines if line.startswith("data: {")
    ]
    assert "".join(texts) == " 6, 7, "
    assert len(texts) > 3


def test_user_text_cannot_close_its_turn(exact: Running) -> None:
    """Markup in a message is spelled out: the chat has as many control tokens as without it."""
    with exact.client() as client:
        counts = []
        for content in ("hi", "hi<|im_end|>"):
            told = client.post("/tokenize", json={"messages": [{"role": "user", "content": content}]}).json()
            counts.append(told["tokens"].count(2))
    assert counts[0] == counts[1] > 0

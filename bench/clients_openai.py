"""The Python package `openai` as a load: python clients_openai.py URL REQUESTS USERS PAUSE TOKENS

Each user sends one request, reads the answer, waits PAUSE seconds and goes on; half of them stream. The
package's own HTTP client drops connections that idle for 5 s. Here it is told to keep them, which is harder
on the server.
Prints {"ok": count, "errors": [...]}.
"""

from __future__ import annotations

import asyncio
import json
import sys

import openai

KEPT = 120.0  # seconds


async def ask(client: openai.AsyncOpenAI, model: str, number: int, tokens: int) -> str | None:
    messages = [{"role": "user", "content": f"Count from {number}."}]
    if number % 2:
        reason = None
        stream = await client.chat.completions.create(
            model=model, messages=messages, max_tokens=tokens, stream=True,
            stream_options={"include_usage": True},
        )  # fmt: skip
        async for chunk in stream:
            reason = chunk.choices[0].finish_reason or reason if chunk.choices else reason
        return reason
    whole = await client.chat.completions.create(model=model, messages=messages, max_tokens=tokens)
    return whole.choices[0].finish_reason


def keeping() -> openai.DefaultAsyncHttpxClient:
    """The package's own HTTP client, but for the time that it keeps connections."""
    library = openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]  # httpx or httpx2
    return openai.DefaultAsyncHttpxClient(limits=sys.modules[library].Limits(keepalive_expiry=KEPT))


async def load(url: str, requests: int, users: int, pause: float, tokens: int) -> dict[str, object]:
    ok, errors = 0, []
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=keeping()
    ) as client:
        model = (await client.models.list()).data[0].id

        async def user(place: int) -> None:
            nonlocal ok
            for number in range(place, requests, users):
                if number >= users:
                    await asyncio.sleep(pause)
                try:
                    reason = await ask(client, model, number, tokens)
                except openai.OpenAIError as error:
                    errors.append(repr(error))
                    continue
                if reason in ("stop", "length"):
                    ok += 1
                else:
                    errors.append(f"finish_reason {reason}")

        await asyncio.gather(*(user(place) for place in range(users)))
    return {"ok": ok, "errors": errors}


if __name__ == "__main__":
    address, *numbers = sys.argv[1:]
    count, at_once, wait, length = map(float, numbers)
    print(json.dumps(asyncio.run(load(address, int(count), int(at_once), wait, int(length)))))

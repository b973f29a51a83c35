"""What the load generator costs itself: CPU time a chunk and lateness, against a server that only sends.

    python bench/client_overhead.py [streams] [chunks a stream] [chunks a second and stream]

The server is this file in a process of its own; it waits for the clock between chunks and computes nothing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

from tutor.client.bench.driver import Driver
from tutor.client.bench.lengths import parse_lengths
from tutor.client.bench.stream import Target
from tutor.client.bench.workload import Load, Ratio, make_items
from tutor.client.http import make_client
from tutor.metrics.summary import percentile

PIECE = {
    "id": "x",
    "object": "chat.completion.chunk",
    "model": "m",
    "choices": [{"delta": {"content": " word"}}],
}
LAST = {"choices": [{"delta": {}, "finish_reason": "length"}]}


def framed(chunk: object) -> bytes:
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request a connection: chunks at the rate that its temperature says, for want of a better field."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    body = json.loads(await reader.readexactly(length))
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
    began = time.perf_counter()
    for i in range(body["max_tokens"]):
        await asyncio.sleep(began + i / body["temperature"] - time.perf_counter())
        writer.write(framed(PIECE))
    writer.write(framed(LAST) + b"0\r\n\r\n")
    await writer.drain()
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def measure(port: str, streams: int, chunks: int, rate: float) -> None:
    load = Load(
        arrivals="closed", requests=streams, concurrency=streams, input_tokens=parse_lengths("50"),
        output_tokens=parse_lengths(str(chunks)),
    )  # fmt: skip
    async with make_client(f"http://127.0.0.1:{port}", None, 60.0) as client:
        target = Target("m", temperature=rate)
        run = await Driver(client, target, make_items(load, Ratio()), load).run()
    received = sum(len(record.token_times) for record in run.records)
    used = run.client.cpu_share * run.duration
    gaps = [b - a for r in run.records for a, b in zip(r.token_times, r.token_times[1:], strict=False)]
    client = run.client
    print(
        f"{streams} streams at {rate:g} chunks/s: {received} chunks, "
        f"{used / received * 1e6:.0f} us of CPU each, "
        f"{client.cpu_share:.0%} of a core; event loop late by {client.lag_median * 1e3:.2f} ms (P50), "
        f"{client.lag_p99 * 1e3:.2f} ms (P99); gaps {percentile(gaps, 50) * 1e3:.2f} ms (P50), "
        f"{percentile(gaps, 99) * 1e3:.2f} ms (P99), sent every {1e3 / rate:.2f} ms"
    )


def main() -> None:
    streams, chunks, rate = (int(x) for x in [*sys.argv[1:], *("16", "200", "60")[len(sys.argv) - 1 :]])
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        asyncio.run(measure(server.stdout.readline().strip(), streams, chunks, rate))
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    asyncio.run(serve()) if sys.argv[1:] == ["serve"] else main()

"""The guest's process for TypeScript: takes the limits on and becomes Node.js, which runs node_guest.mjs.

The supervisor, the namespaces, the pipes and the hidden folders are those of guest.py. What differs:

- Memory: V8 reserves far more address space than it uses, so RLIMIT_AS would end it at its start. Here
  RLIMIT_DATA counts what is writable (Linux 4.7 and newer; array buffers included), and V8's own heap is
  bounded by --max-old-space-size. A heap that is full ends the process by a signal, not by an exception.
- Files: Node's permission model lets the code read its working folder and the folder of the learner's file,
  write the working folder, and start no other program, worker or native module. Where there is no
  namespace this takes the place of guest.py's audit hook. It follows symbolic links, and it does not cover
  descriptors that are open already (https://nodejs.org/api/permissions.html).
"""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path
from typing import NoReturn

from tutor.grading import hiding, rpc, sandbox

_RUNNER = Path(__file__).with_name("node_guest.mjs")
_VALUES = Path(__file__).with_name("node_values.mjs")
# What Node itself maps writable before it runs a line, V8's range for machine code for the most part.
# On x86-64, 24.19 starts with an RLIMIT_DATA of 640 MiB and not with one of 512.
_NODE_BYTES = 640 * 2**20


def become_node(message: rpc.Load, pipes: tuple[int, int], own_processes: bool) -> NoReturn:
    """Replace this process by Node.js; it answers `message` and all that follow. `pipes`: read, write."""
    hiding.hide(message.hidden, own_processes)
    load = _written(message)
    arguments = [message.runtime, *_flags(message), str(_RUNNER), *map(str, pipes), str(load)]
    heap = message.memory_mb * 2**20
    sandbox.limit(heap + _NODE_BYTES, message.cpu_seconds, own_processes, kind=resource.RLIMIT_DATA)
    os.execv(message.runtime, arguments)


def _written(message: rpc.Load) -> int:
    """A nameless file with the message; its descriptor, which Node inherits."""
    with tempfile.TemporaryFile(dir=".") as file:
        file.write(rpc.encode(message))
        file.seek(0)
        copy = os.dup(file.fileno())
    os.set_inheritable(copy, True)
    return copy


def _flags(message: rpc.Load) -> list[str]:
    work = os.getcwd()
    readable = [str(_RUNNER), str(_VALUES), f"{work}/*"]
    if not any(_inside(folder, message.folder) for folder in message.hidden):
        readable.append(f"{message.folder}/*")
    return [
        "--permission",
        *(f"--allow-fs-read={path}" for path in readable),
        f"--allow-fs-write={work}/*",
        f"--max-old-space-size={message.memory_mb}",
        "--disable-warning=ExperimentalWarning",
        "--disable-warning=SecurityWarning",
    ]


def _inside(folder: str, parent: str) -> bool:
    """Whether one of the two holds the other: then neither may be opened."""
    one, other = Path(os.path.realpath(folder)), Path(os.path.realpath(parent))
    return one.is_relative_to(other) or other.is_relative_to(one)

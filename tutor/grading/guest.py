"""The guest: the process that imports the learner's file and answers calls with plain values.

It is started by the judge as `python -I -u -X utf8 -c …` with the numbers of two pipes, and consists of two
processes: a supervisor that only waits, and its child that runs the learner's code.

Covered: the file runs apart from the checks, the model and the verdict; an own session, ended as a
group; end of the judge ends the guest (Linux); CPU time, address space, file size, open files and core
files are limited; BLAS runs one thread; the environment is scrubbed; the working folder is temporary;
standard input is empty; what is printed goes to pipes that the judge drains and caps; the exercises'
folders and the stored references cannot be opened (see hiding.py). Where the kernel grants an unprivileged
namespace: no network, no way to read or signal other processes, none left behind, a working folder of
bounded size.

Not covered: other files that the user may read or write can be read and written; without namespaces
(macOS, hardened Linux) network and other processes are reachable, and hidden files as well for code that
goes around Python's own open; macOS does not enforce the address space; the process count is not limited
for root or without namespaces, only the time; code that searches this process's
memory can find the nonce of the current call and answer in the runner's place, but an answer is still
only a value that the judge compares. This protects a learner's session from the learner's mistakes. It
is no defence against somebody who wants to break out.
"""

from __future__ import annotations

import builtins
import linecache
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from tutor.grading import hiding, rpc, sandbox
from tutor.grading.node_guest import become_node

# taken at import, before the learner's file can replace attributes of these modules
_exit_now = os._exit
_now = time.perf_counter
_FORWARDED = ("RuntimeError", "TypeError", "ValueError", "IndexError", "KeyError", "AttributeError")
_MESSAGE_CAP = 2000


def main(argv: list[str]) -> None:
    """argv: read end, write end, "1" to try namespaces."""
    incoming, outgoing, namespaces = int(argv[0]), int(argv[1]), argv[2] == "1"
    sandbox.die_with_parent()
    note = sandbox.enter_namespaces() if namespaces else "namespaces are switched off"
    child = os.fork()
    if child:
        sandbox.supervise(child, (incoming, outgoing))
    sandbox.die_with_parent()
    runner = Runner(incoming, outgoing, own_processes=not note)
    rpc.write_all(outgoing, rpc.encode(rpc.Hello(b"", [note] if note else [])))
    try:
        runner.serve()
    except EOFError:
        _exit_now(0)


class RemoteFunction:
    """A function of the grader, as the learner's code sees it."""

    __slots__ = ("_label", "_method", "_runner", "_target")

    def __init__(self, runner: Runner, target: int, method: str, label: str) -> None:
        self._runner = runner
        self._target = target
        self._method = method
        self._label = label

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._runner.call_back(self._target, self._method, args, kwargs)

    def __repr__(self) -> str:
        return f"<function {self._label}>"


class RemoteObject:
    """An object of the grader: its methods and fixed attributes."""

    def __init__(self, runner: Runner, target: int, methods: list[str], attrs: dict[str, Any], label: str):
        self.__dict__.update(attrs)
        self.__dict__.update({name: RemoteFunction(runner, target, name, name) for name in methods})
        self.__dict__["_about"] = (target, label, sorted([*methods, *attrs]))

    def __getattr__(self, name: str) -> Any:
        _, label, has = self.__dict__["_about"]
        raise AttributeError(f"{label} has no {name!r}; it has {', '.join(has)}")

    def __repr__(self) -> str:
        return f"<{self.__dict__['_about'][1]}>"


class Runner:
    """Answers the judge's messages. `serve` nests: a call back to the judge may lead to another call here."""

    def __init__(self, incoming: int, outgoing: int, own_processes: bool) -> None:
        # NumPy is imported here, in the process that runs the code: the supervisor stays small
        from tutor.grading.values import NotPlain, Packer, Unpacker

        self._incoming = incoming
        self._outgoing = outgoing
        self._own_processes = own_processes
        self._not_plain = NotPlain
        self._packer = Packer(self._pack_special)
        self._unpacker = Unpacker(self._unpack_special)
        self._lock = threading.RLock()
        self._kept: dict[int, Any] = {}
        self._nonces: list[bytes] = []
        self._module = types.ModuleType("learner")
        self._file = ""
        self._own = 0.0  # seconds that the newest call spent in the learner's code
        self._away = 0.0  # seconds spent in calls back to the judge, to be taken from it

    def serve(self) -> None:
        """Answer messages until the judge closes the pipe (EOFError)."""
        while True:
            message = rpc.read_from_judge(self._incoming)
            if not isinstance(message, rpc.Answer):
                self._handle(message)

    def _handle(self, message: rpc.Load | rpc.Call | rpc.Get | rpc.Put) -> None:
        self._nonces.append(message.nonce)
        reply: rpc.Done | rpc.Raised
        try:
            reply = rpc.Done(message.nonce, self._answer(message), self._own)
            frame = self._encoded(reply)
            if len(frame) > rpc.MAX_TO_JUDGE:
                raise self._not_plain(
                    f"{len(frame) >> 20} MiB of data; {rpc.MAX_TO_JUDGE >> 20} is the limit"
                )
        except BaseException as error:  # noqa: BLE001 - whatever the learner's code raises is the answer
            frame = rpc.encode(self._raised(message.nonce, error))
        self._nonces.pop()
        rpc.write_all(self._outgoing, frame)

    def _encoded(self, reply: rpc.Done) -> bytearray:
        try:
            return rpc.encode(reply)
        except UnicodeEncodeError as error:
            raise self._not_plain("text with a lone surrogate, which is no valid Unicode") from error

    def _timed(self, function: Callable[[], Any]) -> Any:
        """Run the learner's code and note its own seconds; calls back to the judge are not its own."""
        started, away = _now(), self._away
        try:
            return function()
        finally:
            self._own = max(0.0, _now() - started - (self._away - away))

    def _answer(self, message: rpc.Load | rpc.Call | rpc.Get | rpc.Put) -> Any:
        self._own = 0.0
        if isinstance(message, rpc.Load):
            return self._load(message)
        if isinstance(message, rpc.Put):
            return self._keep(self._unpacker.unpack(message.value))
        if isinstance(message, rpc.Get):
            held = self._kept[message.handle]
            return self._packer.pack(getattr(held, message.name) if message.name else held)
        target = self._module if message.handle is None else self._kept[message.handle]
        args = [self._unpacker.unpack(tree) for tree in message.args]
        kwargs = {name: self._unpacker.unpack(tree) for name, tree in message.kwargs.items()}
        result = self._timed(lambda: getattr(target, message.name)(*args, **kwargs))
        return self._keep(result) if message.keep else self._packer.pack(result)

    def _keep(self, value: Any) -> Any:
        number = len(self._kept)
        self._kept[number] = value
        return ["h", number]

    def _load(self, message: rpc.Load) -> None:
        if message.runtime:
            become_node(message, (self._incoming, self._outgoing), self._own_processes)
        hiding.hide(message.hidden, self._own_processes)
        sandbox.limit(message.memory_mb * 2**20, message.cpu_seconds, self._own_processes)
        stem = message.name.removesuffix(".py").replace("-", "_")
        name = f"exercise_{stem}" if stem in sys.modules or not stem.isidentifier() else stem
        self._file = message.name
        # the learner's other files can be imported, but never in place of an installed module
        sys.path.append(message.folder)
        linecache.cache[self._file] = (
            len(message.source),
            None,
            message.source.splitlines(keepends=True),
            self._file,
        )
        self._module = types.ModuleType(name)
        self._module.__file__ = self._file
        sys.modules[name] = self._module
        code = compile(message.source, self._file, "exec", dont_inherit=True)
        self._timed(lambda: exec(code, self._module.__dict__))
        for entry in message.entry:
            if not callable(getattr(self._module, entry, None)):
                raise MissingEntry(f"{self._file} defines no {entry!r}; the checks call it by that name.")

    def call_back(self, target: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called by the learner's code through a proxy: send, then serve until the answer is there."""
        with self._lock:
            nonce = self._nonces[-1] if self._nonces else b""
            packed = [self._packer.pack(value) for value in args]
            named = {name: self._packer.pack(value) for name, value in kwargs.items()}
            frame = rpc.encode(rpc.CallBack(nonce, target, method, packed, named))
            started, away = _now(), self._away
            rpc.write_all(self._outgoing, frame)
            while True:
                message = rpc.read_from_judge(self._incoming)
                if isinstance(message, rpc.Answer):
                    break
                self._handle(message)
            self._away = away + _now() - started  # calls inside it have their own seconds
        if message.error:
            kind = message.error if message.error in _FORWARDED else "RuntimeError"
            raise getattr(builtins, kind)(message.message)
        return self._unpacker.unpack(message.value)

    def _pack_special(self, value: Any) -> Any:
        if isinstance(value, (RemoteFunction, RemoteObject)):
            raise self._not_plain(f"the grader's own {value!r}")
        if isinstance(value, types.CoroutineType):
            raise self._not_plain("a coroutine (an async function gives one; leave `async` away)")
        return None

    def _unpack_special(self, tree: list[Any]) -> Any:
        if tree[0] == "h":
            return self._kept[tree[1]]
        _, target, methods, attrs, label = tree
        if methods is None:
            return RemoteFunction(self, target, "", label)
        values = {name: self._unpacker.unpack(value) for name, value in attrs.items()}
        return RemoteObject(self, target, methods, values, label)

    def _raised(self, nonce: bytes, error: BaseException) -> rpc.Raised:
        kind = type(error).__name__
        if isinstance(error, SyntaxError) and error.filename == self._file:
            place = f"{self._file}:{error.lineno}"
            line = (error.text or "").strip()
            shown = [_unicode(line[:200])] if line else []
            return rpc.Raised(nonce, "SyntaxError", _unicode(str(error.msg)), shown, place, self._own)
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            return rpc.Raised(nonce, "SystemExit", str(code), *self._lines(error), self._own)
        return rpc.Raised(nonce, _unicode(kind[:100]), _text(error), *self._lines(error), self._own)

    def _lines(self, error: BaseException) -> tuple[list[str], str]:
        """The learner's part of a traceback (at most the last four places), and `file:line` of the last."""
        places: list[tuple[int, str]] = []
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename == self._file and (trace.tb_lineno, code.co_name) not in places[-1:]:
                places.append((trace.tb_lineno, code.co_name))
            trace = trace.tb_next
        lines: list[str] = []
        for number, function in places[-4:]:
            inside = "" if function == "<module>" else f", in {_unicode(function)}"
            lines.append(f"{self._file}, line {number}{inside}")
            lines.append(f"    {_unicode(linecache.getline(self._file, number).strip()[:200])}")
        return lines, f"{self._file}:{places[-1][0]}" if places else ""


class MissingEntry(Exception):
    """The file lacks a function or class that the checks call."""


def _unicode(text: str) -> str:
    """The text with lone surrogates written out: no encoder takes them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _text(error: BaseException) -> str:
    try:
        return _unicode(str(error)[:_MESSAGE_CAP])
    except Exception:  # noqa: BLE001 - a learner's exception class may have a broken __str__
        return ""

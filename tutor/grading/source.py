"""The learner's file as text: what Python would not read is refused here in one sentence."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

from tutor.grading.errors import SourceError

MAX_BYTES = 2**20


def read_source(path: Path) -> str:
    """UTF-8 text with LF line ends; a UTF-8 mark at the start and CRLF line ends are accepted."""
    try:
        if path.is_dir():
            raise SourceError(f"{path} is a folder; the checks need a Python file.")
        # a named pipe without a writer would be waited for, and a device has no end
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SourceError(f"{path} is no regular file; the checks need a Python file.")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SourceError(f"There is no file {path}; `tutor start` puts one there.") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}).") from error
    if len(data) > MAX_BYTES:
        raise SourceError(f"{path.name} is larger than 1 MiB; that cannot be meant as an exercise.")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(f"{path.name} is saved as UTF-16; save it as UTF-8.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SourceError(f"{path.name} is not UTF-8 text (line {line}); save it as UTF-8.") from error
    if "\0" in text:
        raise SourceError(f"{path.name} holds a zero byte, so it is not a Python file.")
    return text.replace("\r\n", "\n").replace("\r", "\n")

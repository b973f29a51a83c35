from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]
Tutor = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_TUTOR_COMPLETE" in result.stdout
    assert result.stdout.startswith("# Put this into ~/.")
    interpreter = shutil.which(shell)
    if interpreter:
        checked = subprocess.run([interpreter, "-n"], input=result.stdout, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_the_shell_of_the_user_is_the_default(run: Run) -> None:
    assert run("completion", SHELL="/usr/bin/zsh").stdout == run("completion", "zsh").stdout


@pytest.mark.parametrize("shell", ["", "/bin/csh"])
def test_an_unknown_shell_is_wrong_usage(run: Run, shell: str) -> None:
    result = run("completion", SHELL=shell)
    assert result.exit_code == 2
    assert result.stderr == "Say which shell: `tutor completion bash|zsh|fish`.\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tutor lesson kv", [b"plain,kv-cache", b"plain,kv-math", b"plain,kv-compress"]),
        ("tutor compl", [b"plain,completion"]),
        ("tutor list --j", [b"plain,--json"]),
    ],
)
def test_tab_completes_commands_and_lessons(
    tutor: Tutor, tmp_path: Path, words: str, offered: list[bytes]
) -> None:
    done = tutor(
        data=tmp_path,
        _TUTOR_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert done.stdout.splitlines() == offered

"""The `tutor` command: a click group that imports a subcommand's module only when it is used."""

from __future__ import annotations

import difflib
import importlib

import click

from tutor import __version__

# name -> (module with a click command called `command`, one line for --help)
COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("tutor.cli.list_lessons", "Show all lessons by stage, with their state."),
    "lesson": ("tutor.cli.lesson", "Read a lesson as plain text."),
    "start": ("tutor.cli.start", "Put a lesson's exercise file into your workspace."),
    "check": ("tutor.cli.check", "Grade an exercise against the model."),
    "watch": ("tutor.cli.watch", "Check an exercise whenever you save its file."),
    "hint": ("tutor.cli.hint", "Show the next hint of an exercise."),
    "solution": ("tutor.cli.solution", "Show an exercise's solution (after a pass, or on request)."),
    "reset": ("tutor.cli.reset", "Put an exercise back to its start; your file is backed up."),
    "lab": ("tutor.cli.lab", "Run a lab on the real engine, on screen or headless."),
    "replay": ("tutor.cli.replay", "Play a saved trace."),
    "serve": ("tutor.cli.serve", "Serve the model over HTTP: OpenAI's, llama.cpp's and Ollama's APIs."),
    "bench": ("tutor.cli.bench", "Load a server and measure its latencies."),
    "attach": ("tutor.cli.attach", "Watch a running vLLM, SGLang, llama-server or tutor serve."),
    "progress": ("tutor.cli.progress", "Show what you have done."),
    "doctor": ("tutor.cli.doctor", "Check this machine: compiler, model, engine, terminal, folders."),
    "author": ("tutor.cli.author", "Tools for people who write lessons and exercises."),
    "completion": ("tutor.cli.completion", "Print a shell completion script."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that `tutor` opens fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None  # click says so; `resolve_command` adds what was probably meant
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with the nearest names after a slip of the finger."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, 2, 0.6)
            if not near or args[0] in COMMANDS:
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the one-liners without importing every command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="inference-tutor")
@click.option("--model", metavar="PATH.gguf", help="Use this model instead of the bundled SmolLM2-135M.")
@click.option("--workspace", metavar="DIR", help="Folder of your exercise files (default ~/inference-tutor).")
@click.option("--pack", "packs", multiple=True, metavar="DIR", help="Add the lesson pack in this folder.")
@click.option("--fps", type=click.IntRange(1, 60), default=10, help="Most repaints of a lab a second (10).")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
@click.pass_context
def cli(
    ctx: click.Context,
    model: str | None,
    workspace: str | None,
    packs: tuple[str, ...],
    fps: int,
    ascii_only: bool,
) -> None:
    """Learn how LLM inference and serving work, in your terminal, on a real engine.

    Without a command, opens the full-screen tutor.

    Exit codes: 0 done or passed, 1 failed, 2 wrong usage, 3 could not run.
    """
    if packs:
        _add_packs(packs)
    ctx.obj = {"model": model, "workspace": workspace, "ascii": ascii_only, "fps": fps}
    if ctx.invoked_subcommand is None:
        from tutor.cli.app import run_app

        ctx.exit(run_app(model=model, workspace=workspace, ascii_only=ascii_only, fps=fps))


def _add_packs(folders: tuple[str, ...]) -> None:
    """Make the lesson packs in these folders part of the course, or end with one sentence."""
    from pathlib import Path

    from tutor.curriculum.errors import CourseError
    from tutor.curriculum.packs import add_packs

    try:
        add_packs(Path(folder) for folder in folders)
    except CourseError as error:
        raise click.BadParameter(str(error), param_hint="--pack") from error

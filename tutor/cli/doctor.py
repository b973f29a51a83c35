"""`tutor doctor`: what this machine has, what is missing, and what to type."""

from __future__ import annotations

import dataclasses
import json

import click

COULD_NOT_RUN = 3


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Check this machine: terminal, Python, compiler, engine, model, folders, limits for your code.

    Ends with code 3 when something is missing that the tutor cannot run without.
    """
    from tutor.grading import limits, node
    from tutor.llama.health import examine

    options = ctx.obj or {}
    report = examine(options.get("model"), options.get("workspace"))
    report = dataclasses.replace(report, findings=(*report.findings, *limits.findings(), node.finding()))
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in report.findings]
        click.echo(json.dumps({"can_run": report.can_run, "findings": listed}, indent=2))
    else:
        for finding in report.findings:
            click.echo(f"{'ok' if finding.ok else 'problem':<8} {finding.name:<10} {finding.detail}")
            if not finding.ok and finding.way_out:
                click.echo(f"{'':<19} {finding.way_out}")
        click.echo("The tutor can run here." if report.can_run else "The tutor cannot run here yet.")
    ctx.exit(0 if report.can_run else COULD_NOT_RUN)

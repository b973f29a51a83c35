"""What a failed check recorded of the learner's code: `tutor replay --failure` plays it. No lab runs it."""

from __future__ import annotations

from tutor.labs.scenario import Knob, LabKind
from tutor.trace.views import LabView


def failure_text(view: LabView) -> str:
    """The call of this step, the invariant, and expected beside got, one line each."""
    knobs = view.header.knobs
    head = f"{knobs.get('exercise', '')}: {knobs.get('check', '')}, {view.header.model}, step {view.step}"
    lines = [head]
    compared = view.compared
    if compared is None:
        return "\n".join([*lines, view.note or "nothing was compared yet"])
    word = "holds" if compared.holds else "VIOLATED"
    lines += [f"after {compared.call}" if compared.call else "at the start", f"{word}: {compared.invariant}"]
    if compared.rows:
        width = max(len("what"), *(len(what) for what, _, _ in compared.rows))
        right = max(len("expected"), *(len(text) for _, text, _ in compared.rows))
        lines.append(f"    {'what':<{width}}  {'expected':<{right}}  got")
        for what, expected, got in compared.rows:
            mark = " " if expected == got else "≠"
            lines.append(f"  {mark} {what:<{width}}  {expected:<{right}}  {got}")
    for request in view.serving.requests:
        table = ", ".join(map(str, request.block_ids)) or "none"
        lines.append(f"{request.label}: {request.num_computed_tokens} tokens, blocks {table}")
    return "\n".join(lines)


KIND = LabKind(
    id="failure",
    title="Failed check",
    phenomenon="The moves of your code up to the step that broke what has to hold.",
    producer="",  # it can be played, not run again
    knobs=(
        Knob("exercise", "exercise", "text", "", "Which exercise was checked."),
        Knob("check", "check", "text", "", "Which of its checks failed."),
    ),
    panels=("compared", "tables", "moves", "blocks"),
    plain=failure_text,
)

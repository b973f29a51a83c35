"""One question on the screen: a number to type or a choice to make, then what was right and why."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalGroup
from textual.content import Content
from textual.events import Click, Key
from textual.message import Message
from textual.widgets import Input, Static

from tutor.ui.inline import inline
from tutor.ui.widgets.number_input import NumberInput


class ChoiceRow(Static):
    """One possible answer; a click picks it."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(markup=False, classes="choice")
        self.index = index
        self._text = text

    def on_mount(self) -> None:
        self.pick(False)

    def pick(self, picked: bool) -> None:
        mark = "▸" if picked else " "
        self.set_class(picked, "-picked")
        self.update(Content.assemble((f"{mark} {self.index + 1} ", "bold"), inline(self._text)))


class QuestionBox(VerticalGroup, can_focus=True):
    """Shows a prompt and takes one answer. It does not know what is right."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("enter", "enter", show=False),
        Binding("a", "again", show=False),
    ]

    class Committed(Message):
        """The learner's answer: typed text, or the index of a choice."""

        def __init__(self, answer: str | int) -> None:
            super().__init__()
            self.answer = answer

    class Continue(Message):
        """Enter after the answer was scored."""

    class Again(Message):
        """The same question with other numbers, please."""

    def __init__(self, head: str, prompt: str, unit: str, choices: tuple[str, ...]) -> None:
        super().__init__()
        self._head = head
        self._prompt = prompt
        self._unit = unit
        self._choices = choices
        self._picked = -1
        self.scored = False

    def compose(self) -> ComposeResult:
        yield Static(self._head, classes="head", markup=False)
        yield Static(inline(self._prompt), classes="prompt", markup=False)
        if self._choices:
            for index, text in enumerate(self._choices):
                yield ChoiceRow(index, text)
        else:
            with Horizontal(classes="number"):
                yield NumberInput()
                yield Static(self._unit, classes="unit", markup=False)
        yield Static(classes="feedback", markup=False)

    def on_mount(self) -> None:
        self.take_focus()
        if self._choices:
            self.tell("Press a number to choose, Enter to commit.", "$secondary")
        else:
            self.tell("Type your prediction, Enter commits it.", "$secondary")

    def take_focus(self) -> None:
        if self._choices or self.scored:
            self.focus()
        else:
            self.query_one(Input).focus()

    def tell(self, text: str, style: str = "") -> None:
        self.query_one(".feedback", Static).update(Content.styled(text, style))

    def show_score(self, correct: bool, answer: str, expected: str, explanation: str) -> None:
        """The verdict on the committed answer; from now on Enter continues."""
        self.scored = True
        if correct:
            head = Content.assemble(("✓ Right: ", "bold $success"), inline(f"{expected}."))
        else:
            head = Content.assemble(
                ("✗ Not this time. ", "bold $error"), inline(f"You said {answer}; it is {expected}.")
            )
        keys = Content.styled("Enter goes on · a asks again with fresh numbers", "$secondary")
        body = Content("\n").join([head, inline(explanation), Content(""), keys])
        self.query_one(".feedback", Static).update(body)
        for field in self.query(Input):
            field.disabled = True
        self.focus()
        self.call_after_refresh(self.scroll_visible, animate=False)

    # --- answering ------------------------------------------------------------------------------

    def _pick(self, index: int) -> None:
        if self.scored or not 0 <= index < len(self._choices):
            return
        self._picked = index
        for row in self.query(ChoiceRow):
            row.pick(row.index == index)

    def on_key(self, event: Key) -> None:
        if self._choices and event.character and event.character.isdigit():
            self._pick(int(event.character) - 1)
            event.stop()

    def on_click(self, event: Click) -> None:
        row = event.widget
        while row is not None and not isinstance(row, ChoiceRow):
            row = row.parent if isinstance(row.parent, Static) else None
        if row is not None:
            self._pick(row.index)

    def action_move(self, step: int) -> None:
        if self._choices and not self.scored:
            self._pick((self._picked + step) % len(self._choices) if self._picked >= 0 else 0)

    def action_enter(self) -> None:
        if self.scored:
            self.post_message(self.Continue())
        elif self._picked >= 0:
            self.post_message(self.Committed(self._picked))

    def action_again(self) -> None:
        if self.scored:
            self.post_message(self.Again())

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self.scored and event.value.strip():
            self.post_message(self.Committed(event.value))

"""What `tutor doctor` says about the limits of the learner's code is what was tried just now."""

from __future__ import annotations

import sys

import pytest

from tutor.grading import limits


def test_every_limit_is_tried_and_named() -> None:
    found = {finding.name: finding for finding in limits.findings()}
    assert list(found) == ["limits", "memory", "processes", "isolation"]
    assert all(finding.detail for finding in found.values())
    assert not any(finding.needed for finding in found.values()), "checks run without them"
    if sys.platform == "linux":
        assert found["memory"].ok and found["processes"].ok


@pytest.mark.parametrize(
    ("program", "without"),
    [("_MEMORY", "sandbox.limit(256 * 2**20, 60, False)"), ("_SUBREAPER", "sandbox.adopt_orphans()")],
)
def test_a_limit_that_does_not_hold_is_reported(
    program: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = getattr(limits, program)
    assert without in text
    monkeypatch.setattr(limits, program, text.replace(without, ""))
    name = {"_MEMORY": "memory", "_SUBREAPER": "processes"}[program]
    finding = next(each for each in limits.findings() if each.name == name)
    assert not finding.ok and finding.way_out


def test_a_trial_that_fails_is_no_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_NAMESPACES", "raise SystemExit(1)")
    finding = limits.findings()[-1]
    assert finding.name == "isolation" and not finding.ok and finding.way_out

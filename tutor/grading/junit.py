"""Verdicts as JUnit XML, for CI servers and grade books.

The shape is the one that pytest writes and Jenkins, GitLab and GitHub actions read: `testsuites` with one
`testsuite` a submission and one `testcase` a check; `failure` for a wrong answer, `error` for none,
`skipped` for a submission that is not there. See pytest's documentation, "Creating JUnitXML format files".
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from datetime import UTC, datetime

from tutor.grading.batch import Graded
from tutor.grading.verdict import CheckResult

# what XML 1.0 has no way to write (section 2.2, "Characters"); learners print anything
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(results: Iterable[Graded], now: datetime | None = None) -> str:
    """The whole document. `now`: the time to write down, default the current one."""
    stamp = (now or datetime.now(UTC)).isoformat(timespec="seconds")
    root = ET.Element("testsuites", name="inference-tutor")
    for graded in results:
        root.append(_suite(graded, stamp))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(graded: Graded, stamp: str) -> ET.Element:
    exercise, verdict = graded.submission.exercise, graded.verdict
    workspace = graded.submission.workspace
    name = f"{workspace}.{exercise.id}" if workspace else exercise.id
    suite = ET.Element("testsuite", name=_text(name), timestamp=stamp)
    if verdict is not None:
        facts = {"model": verdict.model, "seed": verdict.seed, "version": verdict.version}
        facts |= {"file": str(graded.submission.path), "workspace": workspace}
        properties = ET.SubElement(suite, "properties")
        for key, value in facts.items():
            ET.SubElement(properties, "property", name=key, value=_text(str(value)))
    cases = list(_cases(graded, name))
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("time", f"{verdict.seconds if verdict is not None else 0.0:.3f}")
    if verdict is not None and verdict.output:
        ET.SubElement(suite, "system-out").text = _text(verdict.output)
    return suite


def _cases(graded: Graded, suite: str) -> Iterable[ET.Element]:
    """One case a check; one more where the file as a whole could not be checked."""
    verdict = graded.verdict
    if verdict is None:
        case = _case(suite, "submission", 0.0)
        if graded.missing:
            ET.SubElement(case, "skipped", message=_text(f"There is no file {graded.submission.path}."))
        else:
            ET.SubElement(case, "error", type="no verdict", message=_text(graded.problem))
        yield case
        return
    for result in verdict.checks:
        case = _case(suite, result.name, result.seconds)
        if result.status != "pass":
            _explain(case, result)
        yield case
    if verdict.message or not verdict.checks:
        case = _case(suite, "import", 0.0)
        first = (verdict.message or "No check was run.").splitlines()[0]
        found = ET.SubElement(case, "error", type=verdict.status, message=_text(first))
        found.text = _text(verdict.message)
        yield case


def _case(suite: str, name: str, seconds: float) -> ET.Element:
    return ET.Element("testcase", classname=_text(suite), name=_text(name), time=f"{seconds:.3f}")


def _explain(case: ET.Element, result: CheckResult) -> None:
    kind = "failure" if result.status == "fail" else "error"
    first = (result.message or result.status).splitlines()[0]
    found = ET.SubElement(case, kind, type=result.misconception or result.status, message=_text(first))
    parts = [result.message, f"checked: {result.against}"]
    named = (("where", result.where), ("expected", result.expected), ("got", result.actual))
    found.text = _text("\n".join([*parts, *(f"{label}: {text}" for label, text in named if text)]))


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)

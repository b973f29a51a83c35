"""Traces on disk: round trip, cut, damaged, newer, not a trace, and no place to write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutor.trace import events as ev
from tutor.trace.codec import TraceError, decode_record, encode_record, read_trace, write_trace
from tutor.trace.events import TraceHeader, TraceRecord
from tutor.trace.perfetto import to_perfetto
from tutor.trace.store import TraceStore

HEADER = TraceHeader(
    lab="paged", clock="wall", provenance="measured", model="m", num_blocks=4, max_num_seqs=2
)


def store(count: int = 5) -> TraceStore:
    made = TraceStore(HEADER)
    for i in range(count):
        made.append(TraceRecord(i, i / 10, i // 2, ev.Noted(f"note {i} \u2013 \u6771")))
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    saved = tmp_path / "t.jsonl"
    write_trace(saved, store())
    return saved


# JSON has no infinity and no NaN, and no event carries one.
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


@settings(deadline=None)
@given(st.sampled_from(msgspec.inspect.type_info(ev.AnyEvent).types), st.data())
def test_every_event_round_trips(kind: msgspec.inspect.StructType, data: st.DataObject) -> None:
    event = data.draw(st.from_type(kind.cls))
    record = TraceRecord(3, 0.5, 1, event)
    assert decode_record(encode_record(record)) == record


def test_round_trip(path: Path) -> None:
    loaded = read_trace(path)
    assert loaded.records == store().records and loaded.header == HEADER and not loaded.warnings


def test_each_line_is_json_with_its_type(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert json.loads(lines[0])["schema"] == ev.SCHEMA_VERSION
    assert json.loads(lines[1])["event"]["type"] == "Noted"


@pytest.mark.parametrize("cut", [2, 7, 30])
def test_a_cut_end_keeps_the_whole_records_and_says_so(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    loaded = read_trace(path)
    assert len(loaded) == 4
    assert "cut in the middle of line 6" in loaded.warnings[0]


def test_a_record_cut_at_its_line_end_is_whole(path: Path) -> None:
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[:3]) + b"\n")
    assert len(read_trace(path)) == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"\x00\xff\xfe", "not a trace"),
        (b'{"a": 1}\n', "no schema version"),
        (b"[1, 2]\n", "no schema version"),
        (b'{"schema": 99, "lab": "x"}\n', "Upgrade inference-tutor"),
        (b'{"schema": 1}\n', "header is damaged"),
    ],
)
def test_what_is_not_a_trace_gets_a_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(content)
    with pytest.raises(TraceError, match=sentence):
        read_trace(bad)


def test_damage_in_the_middle_names_the_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"seq": 1, "ts": "x"}\n'
    path.write_bytes(b"".join(lines))
    with pytest.raises(TraceError, match=r"Line 3 of .* is damaged"):
        read_trace(path)
    del lines[2]
    path.write_bytes(b"".join(lines))
    with pytest.raises(TraceError, match="records are missing"):
        read_trace(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match="directory"):
        read_trace(tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(TraceError, match="Cannot write the trace"):
        write_trace(blocked / "t.jsonl", store())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a Linux device")
def test_a_full_disk_leaves_the_old_trace(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    path.with_name(path.name + ".part").symlink_to("/dev/full")
    with pytest.raises(TraceError, match="No space left"):
        write_trace(path, store(5000))
    assert path.read_bytes() == before


def test_store_refuses_gaps_and_going_back() -> None:
    made = store(3)
    with pytest.raises(ValueError, match="does not follow"):
        made.append(TraceRecord(9, 1.0, 5, ev.Noted("")))
    with pytest.raises(ValueError, match="goes back"):
        made.append(TraceRecord(3, 1.0, 0, ev.Noted("")))


def test_perfetto_has_a_span_for_each_share() -> None:
    made = TraceStore(HEADER)
    share = ev.ScheduledTokens("r", 1, 0, 8, "prefill", "why")
    events = [
        ev.RequestArrived("r", "A", 8, 2),
        ev.StepScheduled((share,), 1, 0, 16),
        ev.StepExecuted(0.25, 8),
    ]
    for i, event in enumerate(events):
        made.append(TraceRecord(i, float(i), 1, event))
    spans = [e for e in json.loads(to_perfetto(made))["traceEvents"] if e["ph"] == "X"]
    assert [(s["name"], s["tid"], s["ts"], s["dur"]) for s in spans] == [("A prefill", 1, 1e6, 0.25e6)]

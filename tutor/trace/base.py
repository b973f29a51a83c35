"""The base of all events, and the version of their schema."""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Base of all events; the JSON field `type` holds the class name."""

"""The observer: a running server's own metrics, polled and turned into frozen views."""

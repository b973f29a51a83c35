"""The load generator: requests of an OpenAI-compatible server, timed from outside."""

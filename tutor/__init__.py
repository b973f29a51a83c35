"""A terminal tutor for LLM inference and serving, on a real llama.cpp engine."""

__version__ = "0.1.0"

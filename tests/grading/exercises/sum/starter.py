"""Add numbers."""


def total(numbers: list[int]) -> int:
    """The sum of `numbers` (0 for an empty list)."""
    raise NotImplementedError("add the numbers up")

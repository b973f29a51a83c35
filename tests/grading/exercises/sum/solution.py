"""Add numbers."""


def total(numbers: list[int]) -> int:
    """The sum of `numbers` (0 for an empty list)."""
    result = 0
    for number in numbers:
        result += number
    return result

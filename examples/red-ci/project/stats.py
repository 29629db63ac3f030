"""Figures of a list of numbers."""


def median(numbers):
    """The number in the middle, or None without numbers."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle]

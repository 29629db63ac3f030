"""Roman numerals."""

VALUES = [(1000, "M"), (500, "D"), (100, "C"), (50, "L"), (10, "X"), (5, "V"), (1, "I")]


def to_roman(number):
    """The Roman numeral of a number from 1 to 3999."""
    text = ""
    for value, letter in VALUES:
        while number >= value:
            text += letter
            number -= value
    return text

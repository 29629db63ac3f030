import unittest

from stats import median


class Median(unittest.TestCase):
    def test_no_numbers(self):
        self.assertIsNone(median([]))

    def test_middle(self):
        self.assertEqual(median([3, 1, 2]), 2)
        self.assertEqual(median([4, 1, 3, 2]), 2.5)

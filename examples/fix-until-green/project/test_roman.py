import unittest

from roman import to_roman


class Roman(unittest.TestCase):
    def test_additive(self):
        self.assertEqual(to_roman(2026), "MMXXVI")

    def test_subtractive(self):
        self.assertEqual(to_roman(1994), "MCMXCIV")

    def test_out_of_range(self):
        for number in (0, -1, 4000):
            with self.assertRaises(ValueError):
                to_roman(number)


if __name__ == "__main__":
    unittest.main()

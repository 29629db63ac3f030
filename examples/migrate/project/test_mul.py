import unittest


class Test(unittest.TestCase):
    def test_mul(self):
        self.assertEqual(2 * 3, 6)

import unittest


class Test(unittest.TestCase):
    def test_add(self):
        self.assertEqual(2 + 3, 5)

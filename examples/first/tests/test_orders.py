"""Tests of the code of tasks, without a cluster: `python -m unittest discover tests`."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
from orders import orders_of


class TestOrders(unittest.TestCase):
    def test_orders_of_a_day_are_the_same_each_time(self) -> None:
        self.assertEqual(list(orders_of("2026-01-31", 3)), list(orders_of("2026-01-31", 3)))

    def test_orders_are_of_the_day(self) -> None:
        self.assertEqual([day for day, _, _ in orders_of("2026-01-31", 2)], ["2026-01-31"] * 2)

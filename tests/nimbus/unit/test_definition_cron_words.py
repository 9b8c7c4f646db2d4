"""Schedules as text: correct, or no text."""

from __future__ import annotations

import pytest

from nimbus.web.words import cron_in_words


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("5 * * * *", "every hour at minute 5"),
        ("0 */6 * * *", "every 6 hours at minute 0"),
        ("0 6 * * *", "daily at 06:00"),
        ("30 6,18 * * *", "daily at 06:30, 18:30"),
        ("30 6 * * 1-5", "Monday to Friday at 06:30"),
        ("0 0 * * 0", "Sunday at 00:00"),
        ("30 2 * * mon-fri", "Monday to Friday at 02:30"),
        ("30 2 * * SUN,wed", "Sunday, Wednesday at 02:30"),
        ("0 0 * * 6,7", "Saturday, Sunday at 00:00"),
        ("*/30 * * * 1", "every 30 minutes, Monday"),
        ("0 4 1 * *", "on day 1 of each month at 04:00"),
        ("*/7 * * * *", None),
        ("0 6 1 * 1", None),
        ("0 6 * 1 *", None),
        ("0 6 L * *", None),
        ("0 6 0 * *", None),
        ("0 6 * * 5-1", None),
        ("0 6 * * 8", None),
        ("0 6 * * mon#1", None),
        ("0 25 * * *", None),
        ("0-30 6 * * *", None),
        ("@daily", None),
    ],
)
def test_usual_expressions_have_words_and_others_none(cron: str, said: str | None) -> None:
    assert cron_in_words(cron) == said

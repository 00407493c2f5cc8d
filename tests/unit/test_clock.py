"""The clock: one form of time, cheap for the real one and true for the fake."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from agent import clock


def test_a_stamp_is_the_time_in_its_one_form_second_after_second():
    for _ in range(3):
        before, text, after = clock.now(), clock.stamp(), clock.now()
        assert before <= clock.parse(text) + timedelta(microseconds=1)
        assert clock.parse(text) <= after
        assert text == clock.stamp(clock.parse(text))


def test_a_kept_second_is_never_written_for_another():
    real = clock.Clock()
    real._second = (1, "1970-01-01T00:00:01")
    assert not real.stamp().startswith("1970")


def test_the_fake_clock_stamps_its_own_time():
    with clock.use(clock.FakeClock(datetime(2026, 1, 31, 9, 15, tzinfo=UTC))) as fake:
        assert clock.stamp() == "2026-01-31T09:15:00.000000Z"
        fake.move(1.5)
        assert clock.stamp() == "2026-01-31T09:15:01.500000Z"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "yesterday", ""])
def test_a_text_that_is_no_time_and_a_time_that_utc_has_not_are_a_value_error(text):
    with pytest.raises(ValueError, match=re.escape(text) or "isoformat"):
        clock.parse(text)

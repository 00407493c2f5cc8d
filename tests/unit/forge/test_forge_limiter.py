"""One limiter a host: what one process hears, the others keep to."""

from __future__ import annotations

import subprocess
import sys
import threading

import orjson
import pytest

from agent import clock
from agent.errors import ForgeLimited
from agent.forge.rate_limiter import BURST, EVERYTHING, RateLimiter


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as fake:
        yield fake


def wait(limiter, bucket="core", *, change=False, patience=0.0, reserve=0.0):
    return limiter.wait(bucket, change=change, patience=patience, reserve=reserve)


def budget(limiter, bucket):
    return orjson.loads(limiter.path.read_bytes())["buckets"][bucket]


def test_nothing_heard_means_go(tmp_path):
    limiter = RateLimiter(tmp_path / "limits", "github.com")
    assert wait(limiter) == 0
    assert not (tmp_path / "limits").exists()


def test_what_one_process_hears_holds_back_another(tmp_path):
    code = (
        "import sys; from pathlib import Path; from agent.forge.rate_limiter import RateLimiter;"
        "RateLimiter(Path(sys.argv[1]), 'github.com').slow_down('*', 300.0, 'asked to')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    with pytest.raises(ForgeLimited, match="asked to") as limited:
        wait(RateLimiter(tmp_path, "github.com"), patience=60)
    assert 290 < limited.value.retry_after <= 300
    assert wait(RateLimiter(tmp_path, "ghe.example.org")) == 0


def test_a_bucket_rests_alone_and_everything_rests_together(tmp_path, time):
    limiter = RateLimiter(tmp_path, "h")
    limiter.slow_down("search", 100.0, "its budget is used up")
    assert wait(limiter) == 0
    with pytest.raises(ForgeLimited):
        wait(limiter, "search")
    limiter.slow_down(EVERYTHING, 50.0, "asked to")
    assert wait(limiter, patience=60) == 50
    assert wait(limiter, "search", patience=60) == 50


def test_a_shorter_pause_does_not_end_a_longer_one(tmp_path, time):
    limiter = RateLimiter(tmp_path, "h")
    limiter.slow_down("core", 100.0, "long")
    limiter.slow_down("core", 1.0, "short")
    assert wait(limiter, patience=200) == 100


def test_pauses_without_a_time_double_until_an_answer_is_good(tmp_path, time):
    limiter = RateLimiter(tmp_path, "h")
    assert [limiter.slow_down("core", None, "x") for _ in range(6)] == [60, 120, 240, 480, 900, 900]
    limiter.went_well()
    assert limiter.slow_down("core", None, "x") == 60


def test_a_reserve_is_kept_until_the_reset(tmp_path, time):
    limiter = RateLimiter(tmp_path, "h")
    limiter.note_budget("core", remaining=50, limit=100, reset_in=600)
    assert wait(limiter, reserve=0.4) == 0
    with pytest.raises(ForgeLimited, match="50 of 100 requests are left"):
        wait(limiter, reserve=0.5)
    assert wait(limiter) == 0
    time.move(601)
    assert wait(limiter, reserve=0.5) == 0
    assert budget(limiter, "core")["remaining"] == 50


def test_changes_are_paced_over_all_threads_and_looks_are_not(tmp_path):
    limiters = [RateLimiter(tmp_path, "h") for _ in range(4)]
    refused = []

    def change(limiter):
        for _ in range(BURST):
            try:
                wait(limiter, change=True)
            except ForgeLimited:
                refused.append(1)

    threads = [threading.Thread(target=change, args=(limiter,)) for limiter in limiters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = 4 * BURST - len(refused)
    assert BURST <= made <= BURST + 30  # real time passes meanwhile, and gives one a second
    assert wait(limiters[0]) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"buckets": null}',
        '{"buckets": {"core": 1}}',
        '{"blocked": {"core": {"until": "x"}}}',
        '{"tokens": "x"}',
    ],
)
def test_a_file_that_cannot_be_read_counts_as_empty(tmp_path, text):
    limiter = RateLimiter(tmp_path, "h")
    limiter.path.write_text(text)
    assert wait(limiter) == 0
    assert wait(limiter, change=True) == 0
    limiter.note_budget("core", remaining=1, limit=2, reset_in=3)
    assert budget(limiter, "core")["limit"] == 2


@pytest.mark.parametrize("host", ["github.com", "127.0.0.1:8080", "example.org/git lab", "../../etc", ".."])
def test_a_host_names_one_file_in_the_folder(tmp_path, host):
    limiter = RateLimiter(tmp_path / "limits", host)
    limiter.note_budget("core", remaining=1, limit=2, reset_in=3)
    assert limiter.path.parent == tmp_path / "limits"
    assert limiter.path.is_file()


def test_where_nothing_can_be_written_a_process_counts_for_itself_until_it_can(tmp_path, time):
    """A disk that is full keeps nobody from saying so on the issue."""
    folder = tmp_path / "limits"
    folder.write_text("in the way\n")
    limiter = RateLimiter(folder, "github.com")
    limiter.note_budget("core", remaining=1, limit=5000, reset_in=100.0)
    for _ in range(BURST):
        assert wait(limiter, change=True) == 0
    with pytest.raises(ForgeLimited, match="paced"):
        wait(limiter, change=True)
    limiter.slow_down(EVERYTHING, 30.0, "asked to")
    with pytest.raises(ForgeLimited, match="asked to"):
        wait(limiter)
    folder.unlink()
    time.move(31.0)
    assert wait(limiter, change=True) == 0
    assert budget(limiter, "core")["remaining"] == 1
    assert wait(RateLimiter(folder, "github.com")) == 0

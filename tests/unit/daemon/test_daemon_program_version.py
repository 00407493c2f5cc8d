"""Code that is replaced under a running daemon is seen before a worker is started."""

import os
import shutil

import pytest

from agent import clock, durable_files
from agent.daemon import program_version
from agent.daemon.program_version import InstalledProgram, digest, lock_of, record, restart_reason
from agent.daemon.supervisor import Supervisor


@pytest.fixture
def package(tmp_path):
    top = tmp_path / "package"
    (top / "sub").mkdir(parents=True)
    (top / "__init__.py").write_text("")
    (top / "sub" / "one.py").write_text("x = 1\n")
    (top / "sub" / "query.sql").write_text("SELECT 1;\n")
    return top


@pytest.fixture
def time():
    with clock.use(clock.FakeClock(clock.now())) as now:
        yield now


def replace(top):
    """What `git pull` does: another file under the same name."""
    (top / "sub" / "new").write_text("x = 2\n")
    os.replace(top / "sub" / "new", top / "sub" / "one.py")


def test_a_file_that_was_replaced_is_named(package, time):
    seen = InstalledProgram(package)
    time.move(2)
    assert seen.describe_change() == ""
    replace(package)
    assert seen.describe_change() == "", "not more often than each second"
    time.move(2)
    assert "sub/one.py" in seen.describe_change()


@pytest.mark.parametrize("change", ["removed", "added", "query"])
def test_every_file_that_counts_counts(package, time, change):
    seen = InstalledProgram(package)
    if change == "removed":
        (package / "sub" / "one.py").unlink()
    elif change == "added":
        (package / "two.py").write_text("")
    else:
        (package / "sub" / "query.sql").write_text("SELECT 2;\n")
    time.move(2)
    assert seen.describe_change()


def test_the_same_code_written_again_and_what_python_caches_are_no_change(package, time):
    seen = InstalledProgram(package)
    shutil.copytree(package, package.with_name("copy"))
    shutil.rmtree(package)
    package.with_name("copy").rename(package)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "one.py").write_text("")
    os.utime(package / "sub" / "one.py")
    time.move(2)
    assert seen.describe_change() == ""


def test_a_daemon_whose_code_was_replaced_starts_nothing_and_says_so_once(place, package, time):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    supervisor.installed = InstalledProgram(package)
    started = []
    supervisor.start = started.append
    replace(package)
    for _ in range(3):
        time.move(2)
        supervisor.start_due()
    assert started == []
    assert len(here.named("code_changed")) == 1
    row = here.ledger.get(uuid)
    assert (row.status, row.attempt, row.deaths) == ("queued", 0, 0)


def test_it_is_seen_from_outside_while_the_daemon_lives(place, package, monkeypatch):
    here = place()
    here.settings.base_dir.mkdir(exist_ok=True)
    monkeypatch.setattr(program_version, "TOP", package)
    lock = durable_files.lock(lock_of(here.settings))
    try:
        record(here.settings, digest(package))
        assert restart_reason(here.settings, package) == ""
        replace(package)
        assert "restart the daemon" in restart_reason(here.settings, package)
    finally:
        durable_files.unlock(lock)
    assert restart_reason(here.settings, package) == ""

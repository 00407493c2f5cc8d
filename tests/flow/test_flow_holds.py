"""A set-up that fails for everybody is not tried by everybody, and code that is replaced starts nothing."""

import shutil
import signal
import time

import pytest
from flow_home import ROOT, FlowHome, finish, finished, said, until, write

from agent.daemon import program_version


@pytest.fixture
def home(tmp_path):
    plays = {f"Number {n}": [write(f"{n}.txt"), finish(f"N{n}")] for n in range(1, 7)}
    made = FlowHome(
        tmp_path,
        plays,
        config="scheduling: {max_workers: 1, interval: 1, idle_interval: 1}\nworkspace: {setup: {command: 'test -e /no/such/file'}}\n",
    )
    yield made
    made.close()


def statuses(here):
    return [here.row(n)["status"] for n in sorted(here.rows())]


def test_a_set_up_that_fails_for_three_is_not_tried_by_the_rest_until_it_is_mended(home):
    for number in range(1, 7):
        home.issue(number, f"Number {number}")
    text = home.once(code=1)
    assert statuses(home).count("failed") == 3
    assert statuses(home).count("queued") == 3
    assert text.count("starts_held") == 1
    assert "different ones failed alike (setup_failed)" in home.run("tasks", code=0)[1]
    assert "different ones failed alike (setup_failed)" in home.run("doctor")[1]
    assert {home.row(n)["attempt"] for n in sorted(home.rows()) if home.row(n)["status"] == "queued"} == {0}

    home.once(code=1)  # the next daemon: one try
    assert statuses(home).count("failed") == 4

    home.config.write_text(home.config.read_text().replace("test -e", "true"))
    text = home.once()
    assert statuses(home).count("completed") == 2
    assert "starts_go_on" in text
    assert "failed alike" not in home.run("tasks", code=0)[1]


def test_a_daemon_whose_code_is_replaced_before_its_first_task_starts_nothing_and_says_so(home, tmp_path):
    program = tmp_path / "program"
    shutil.copytree(ROOT / "agent", program / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "main.py", program)
    daemon = home.start("run", program=(str(program / "main.py"),))
    until((home.contexts / "daemon.json").exists, "the daemon")
    values = program / "agent" / "config" / "settings.py"
    values.write_text(values.read_text() + "\n# the next version\n")
    time.sleep(program_version.SECONDS)  # the daemon looks at its files again after so long
    home.issue(1, "Number 1")
    said(daemon, "code_changed")
    assert "runs other code" in listed(home, program)
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert "code_changed" not in text, "it is said once"
    row = home.row(1)
    assert (row["status"], row["attempt"], row["deaths"]) == ("queued", 0, 0)
    assert "runs other code" not in listed(home, program)


def listed(home, program):
    process = home.start("tasks", program=(str(program / "main.py"),))
    return finished(process)

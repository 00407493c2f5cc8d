"""A host that gives git no memory: no task fails by it, and the host pauses itself."""

import os
import shutil
import signal

from flow_home import finish, finished, until, write

ILL = """#!/bin/sh
[ -e ILL ] && { echo "fatal: mmap failed: Cannot allocate memory" >&2; exit 128; }
exec GIT "$@"
"""


def test_tasks_wait_while_git_gets_no_memory_and_the_host_says_that_it_starts_nothing(home, monkeypatch):
    titles = ["One", "Two", "Three", "Four"]
    plays = {title: [write(f"{title}.txt"), finish()] for title in titles}
    here = home(plays, config="scheduling: {max_workers: 1, interval: 0.2, idle_interval: 0.2, drain_seconds: 1}\n")
    for number, title in enumerate(titles, 1):
        here.issue(number, title)
    tools, ill = here.folder / "tools", here.folder / "ill"
    tools.mkdir()
    git = tools / "git"
    git.write_text(ILL.replace("ILL", str(ill)).replace("GIT", shutil.which("git")))
    git.chmod(0o755)
    ill.touch()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    daemon = here.start("run")
    until(lambda: sum(row["error_code"] == "git_starved" for row in here.rows().values()) == 3, "three that wait")
    until(lambda: len(here.rows()) == 4, "the fourth one's row")
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert {row["status"] for row in here.rows().values()} == {"queued"}
    assert here.row(4)["attempt"] == 0, "the host pauses itself"
    (said,) = (line for line in text.splitlines() if "starts_held" in line)
    assert "this host" in said
    assert "starts nothing: 3 different tasks in a row failed here" in here.run("tasks", code=0)[1]

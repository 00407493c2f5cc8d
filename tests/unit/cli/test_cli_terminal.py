"""On a real terminal: tables and colours are ours, nothing of what others wrote is obeyed."""

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import closing

import pytest
from cli_home import DONE, OPEN, ROOT, Home
from rich.cells import cell_len
from rich.console import Console

from agent.cli.tables import folded

OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[KAG]|\x1b\[2K")
"""What Rich itself writes: colours, the cursor of the spinner, one line erased."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("home")).both()
    home.repository()
    return home


def on_a_terminal(home, *args, columns=100, lines=40):
    """(text, exit code) of a command whose output is a terminal of so many columns and lines."""
    master, slave = pty.openpty()
    env = {
        **os.environ,
        "COLUMNS": str(columns),
        "LINES": str(lines),
        "TERM": os.environ["TERM"] if os.environ.get("TERM") == "dumb" else "xterm-256color",
    }
    command = [sys.executable, str(ROOT / "main.py"), "--config", str(home.config), *args]
    child = subprocess.Popen(command, cwd=home.folder, env=env, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    data = b""
    while True:
        try:
            chunk = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        data += chunk
    os.close(master)
    return data.decode(), child.wait(60)


def test_a_hostile_title_and_tool_output_cannot_reach_the_terminal(home):
    for args in (("tasks",), ("show", DONE), ("show", DONE, "--full"), ("show", DONE, "--watch")):
        text, code = on_a_terminal(home, *args)
        assert code == 0
        rest = OURS.sub("", text)
        assert not any(sign in rest for sign in ("\x1b", "\x9b", "\x07", "\u202e"))
        assert "owned" not in rest
        assert "合計" in rest


def test_tasks_is_a_table_with_short_uuids(home):
    text, _ = on_a_terminal(home, "tasks")
    assert OPEN[:8] in text
    assert OPEN not in text


@pytest.mark.parametrize("args", [("tasks",), ("show", OPEN, "--full"), ("show", DONE, "--full"), ("show", DONE)])
def test_on_eighty_columns_no_line_is_wider_and_what_counts_is_there(home, args):
    text, code = on_a_terminal(home, *args, columns=80)
    assert code == 0
    lines = OURS.sub("", text).replace("\r", "").split("\n")
    # A path is one line of the program's that the terminal breaks: it is there to be copied.
    assert [line for line in lines if cell_len(line) > 80 and not line.startswith("folder ")] == []
    told = "".join(lines)
    if args == ("tasks",):
        assert all(part in told for part in (OPEN[:8], DONE[:8], "completed", "running", "default#1", "Fix the t"))
    else:
        assert f"folder       {home.settings.base_dir}" in told
        assert "120+8" in told
        if args[-1] == "--full":
            assert all(part in told for part in ("message 1", "tool 1", "message 4", "effect 2"))
            assert all(part in lines for part in ("    You are an agent.", "    I look first. → read_file"))
        else:
            assert "                 read_file calc.py → 20 characters, 12 ms" in lines


def test_a_text_is_folded_between_words_beside_its_name_and_a_path_stays_whole():
    text = "next         call `makimono retry 0b000000`, or look at what the check printed"
    assert folded(text, 40) == [
        "next         call `makimono retry",
        "             0b000000`, or look at what",
        "             the check printed",
    ]
    path = f"folder       /{'x' * 60}"
    assert folded(path, 40) == [path]
    told = folded("note: " + "合計を表示する" * 10, 40)
    assert (max(map(cell_len, told)), "".join(line.strip() for line in told)) == (40, "note: " + "合計を表示する" * 10)


def test_a_narrow_terminal_leaves_out_numbers_and_times_rather_than_titles(home):
    text, _ = on_a_terminal(home, "tasks", columns=50)
    lines = OURS.sub("", text).splitlines()
    assert next(line.split() for line in lines if "uuid" in line) == ["uuid", "status", "task", "title"]
    assert any(line.split()[-2:] == ["Open", "one"] for line in lines)
    assert max(cell_len(line) for line in lines) <= 50


def test_without_colour_the_same_is_shown_and_a_task_that_has_ended_is_watched_no_longer(home, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown, code = on_a_terminal(home, "show", DONE, columns=80)
    assert code == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown), "a colour"
    watched, code = on_a_terminal(home, "show", DONE, "--watch", columns=60, lines=12)
    assert code == 0
    assert f"folder       {home.settings.base_dir}" in watched, "the text is whole at the end"
    last = [line for line in OURS.sub("", watched).split("\r\n") if "Done." in line][-1]
    assert last.strip().endswith("[150+3 tk]")
    monkeypatch.setenv("TERM", "dumb")
    plain, code = on_a_terminal(home, "show", DONE, "--watch", columns=80)
    assert code == 0
    assert "\x1b" not in plain
    assert "completed (finished)" in plain


def test_tasks_watch_fits_the_terminal_with_what_tasks_wait_for(home, monkeypatch):
    """Drawn once: nothing is written again while nothing has changed."""
    from agent.cli import watch_tasks
    from agent.cli.config_and_output import CliState
    from agent.cli.tasks_request_config import _listed
    from agent.daemon.task_reasons import Reason
    from agent.wiring.wiring import Wiring

    with closing(Wiring(home.settings)) as wiring:
        rows = wiring.ledger.list() * 20
    look = watch_tasks.Look(rows, {OPEN: Reason("worker", "no worker is free")}, ["the disk is short"])
    drawn = io.StringIO()
    out = Console(file=drawn, width=80, height=20, force_terminal=True, color_system=None)
    monkeypatch.setattr(watch_tasks.tables, "console", lambda: out)
    state = CliState(config=home.config)
    watch_tasks._table(state, iter([look] * 3), lambda row: _listed(state, row, short=True))
    text = OURS.sub("", drawn.getvalue())
    assert text.count("no worker is free") <= 2, "once, and once more at the end, where Rich draws the last state"
    last = text.split("uuid ")[-1].splitlines()
    assert len(last) <= 18
    assert max(cell_len(line) for line in last) <= 80
    told = [line.strip() for line in last if line.strip()][-3:]
    assert told[0].startswith("… and ")
    assert told[1].startswith("20 tasks: no worker is free (0a000000, 0a000000")
    assert told[2] == "the disk is short"


def test_json_on_a_terminal_is_json_alone(home):
    text, code = on_a_terminal(home, "doctor", "--json")
    assert code == 0, text
    assert text.startswith("{")
    assert "\x1b" not in text


def test_doctor_shows_what_it_looks_at(home):
    text, code = on_a_terminal(home, "doctor")
    assert code == 0, text
    assert "looking" in text
    assert "sandbox.kind" in OURS.sub("", text)


def test_run_counts_what_runs_and_waits_on_one_line_and_takes_it_away(home):
    text, code = on_a_terminal(home, "run", "--once")
    assert code == 0, text
    assert "running" in text
    assert "daemon_stopped" in text
    assert text.endswith("\x1b[?25h\r\x1b[1A\x1b[2K"), "the cursor is back and the line is gone"

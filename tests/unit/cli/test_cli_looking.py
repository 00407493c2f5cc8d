"""tasks, show, request, config show, pause, resume, stop: what they print, and that they leave everything alone."""

import json
import os
import re
import signal

import pytest
import services
from cli_home import DONE, OPEN, SHOWN, Home

from agent import durable_files
from agent.cli.main import main
from agent.cli.solve import _pull_text
from agent.cli.termination import TERMINATED, sigterm_as_exit
from agent.values import Usage

UNSAFE = ("\x1b", "\x9b", "\x07", "\u202e")


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path).both()


@pytest.fixture
def run(home, capsys):
    def call(*args):
        code = main(["--config", str(home.config), *args])
        out = capsys.readouterr().out
        assert not any(sign in out for sign in UNSAFE)
        return code, out

    return call


def snapshot(folder):
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_tasks_lists_every_task_in_aligned_columns(run):
    code, out = run("tasks")
    heading, *rows = out.splitlines()
    assert code == 0
    assert len(rows) == 2
    at = heading.index("title")
    done = next(row for row in rows if row.startswith(DONE))
    assert done[at:] == SHOWN
    assert "completed" in done


def test_tasks_of_a_shared_ledger_tell_the_host(home, capsys):
    with services.schema(home.folder) as address:
        config = home.config
        config.write_text(config.read_text() + f"taskqueue: {{ledger: '{address}'}}\n")
        from agent.taskqueue.postgresql import PostgresLedger

        ledger = PostgresLedger(home.folder, address)
        key = {"task_source": "local", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "7"}
        uuid = ledger.enqueue(key, title="A title")
        ledger.claim(uuid, "0123456789ab:/srv/contexts:7:99", 60)
        ledger.db.execute("UPDATE tasks SET hostname = 'builder7' WHERE uuid = :uuid", uuid=uuid)
        waiting = ledger.enqueue(key | {"task_id": "8"}, title="A title")
        ledger.close()
        assert main(["--config", str(config), "tasks"]) == 0
        heading, *rows = capsys.readouterr().out.splitlines()
        at = heading.index("host")
        assert {row[:36]: row[at : at + 8].strip() for row in rows[:2]} == {uuid: "builder7", waiting: "-"}
        assert main(["--config", str(config), "show", uuid]) == 0
        out = capsys.readouterr().out
        place = f"/srv/contexts/running/{uuid}"
        assert f"note: the conversation lies on builder7, in {place}; call `show {uuid}` there" in out


def test_tasks_as_json_is_the_rows(run):
    code, out = run("tasks", "--json")
    rows = json.loads(out)
    assert code == 0
    assert {row["uuid"] for row in rows} == {OPEN, DONE}
    assert {row["status"] for row in rows} == {"running", "completed"}


def test_without_a_price_the_cost_is_null_and_with_one_a_number(home, run):
    def costs():
        rows = json.loads(run("tasks", "--json")[1])
        return {row["cost"] for row in rows} | {json.loads(run("show", DONE, "--json")[1])["row"]["cost"]}

    assert costs() == {None}
    assert "\ncost " not in run("show", DONE)[1]
    assert "cost" not in run("tasks")[1]
    home.config.write_text(home.config.read_text().replace("rec.jsonl}", "rec.jsonl, price: {input: 1, output: 1}}"))
    assert costs() == {0}
    assert "  cost USD  " in run("tasks")[1]


def test_tasks_can_be_chosen_by_status_and_number(run):
    assert DONE not in run("tasks", "--status", "running")[1]
    assert len(json.loads(run("tasks", "--limit", "1", "--json")[1])) == 1
    assert run("tasks", "--status", "queued") == (0, "no queued tasks\n")


def test_an_unknown_status_is_refused_with_the_known_ones(home, capsys):
    empty = home.folder / "empty" / "config.yaml"
    empty.parent.mkdir()
    empty.write_text("llm: {provider: ollama, ollama: {model: m}}\n")
    for config in (home.config, empty):
        assert main(["tasks", "--status", "done", "--config", str(config)]) == 2
        assert "completed" in capsys.readouterr().err


@pytest.mark.parametrize("uuid", [OPEN, DONE])
def test_show_in_full_tells_the_story_of_open_and_closed_tasks_in_order(run, uuid):
    code, out = run("show", uuid, "--full")
    assert code == 0
    places = [out.index(part) for part in ("message 1", "message 2", "message 3", "tool 1", "effect 2", "effect 3")]
    assert places == sorted(places)
    assert "reported 120+8" in out
    assert "read_file" in out


def test_show_says_which_numbers_are_estimates(run):
    _, out = run("show", OPEN, "--full")
    assert "estimates (" in out
    assert "the provider's own numbers" in out


def test_show_says_when_answers_came_without_numbers(home, run):
    context = home.task("0c000000-0000-4000-8000-000000000003", 3)
    context.get_message_store().add_message("assistant", "No numbers.", finish_reason="stop")
    context.close()
    assert "only 1 of 2 answers came with the provider's numbers" in run("show", "0c", "--full")[1]


def test_show_as_json_has_row_notes_and_entries(run):
    code, out = run("show", DONE, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["row"]["uuid"] == DONE
    assert found["live"] is False
    kinds = [entry["kind"] for entry in found["entries"]]
    assert kinds == ["message", "message", "message", "tool", "effect", "effect", "message"]
    assert found["entries"][2]["prompt_tokens"] == 120
    assert [entry["message"] for entry in found["entries"]] == [None, None, None, 4, None, None, None]


def test_show_says_which_numbers_it_leaves_out(home, run):
    found = json.loads(run("show", DONE, "--json")[1])
    [said] = [note for note in found["notes"] if note.startswith("numbers that are missing below: ")]
    assert "1 messages with a tool's result (shown as tool)" in said
    folder = home.settings.base_dir / "completed" / DONE
    written = {name: (folder / name).read_bytes().count(b"\n") for name in ("messages.jsonl", "effects.jsonl")}
    for name, lines in written.items():
        shown = sum(one["file"] == name for one in found["entries"])
        left = re.search(rf"(\d+) {name.partition('.')[0]}", said)
        assert lines == shown + int(left[1] if left else 0)


def test_show_of_a_damaged_task_passes_over_the_damage_and_names_it(home, run):
    path = home.settings.base_dir / "running" / OPEN / "messages.jsonl"
    with path.open("ab") as file:
        file.write(b"\0\0\0\n" + b'{"seq": 6, "role": "user", "content": "torn')
    before = path.read_bytes()
    for args in (("show", OPEN), ("show", OPEN, "--full")):
        code, out = run(*args)
        assert code == 0
        assert "NUL bytes" in out
        assert "I look first." in out
    assert path.read_bytes() == before


def test_looking_changes_nothing_of_a_task(home, run):
    folder = home.settings.base_dir / "running" / OPEN
    with (folder / "messages.jsonl").open("ab") as file:
        file.write(b'{"seq": 6, "role": "user", "content": "torn')
    (folder / "current.jsonl").unlink()  # a store that opened it would derive it again
    held = durable_files.lock(folder / "lock")
    before = snapshot(folder)
    try:
        assert run("show", OPEN)[0] == 0
        assert run("show", OPEN, "--full")[0] == 0
        assert run("request", OPEN)[0] == 0
    finally:
        durable_files.unlock(held)
    assert snapshot(folder) == before


def test_show_of_a_task_that_was_never_started_has_the_row(home, run):
    from agent.values import TaskKey
    from agent.wiring.wiring import Wiring

    wiring = Wiring(home.settings)
    uuid = wiring.ledger.enqueue(TaskKey("local", "local", "default", "issue", "9", "x"), title="Waits")
    wiring.close()
    code, out = run("show", uuid)
    assert code == 0
    assert "it was never started" in out
    code, out = run("request", uuid)
    assert code == 0
    assert "there is no conversation yet" in out
    assert json.loads(run("request", uuid, "--json")[1])["request"] is None


def test_request_is_what_would_be_sent_and_says_why(run):
    code, out = run("request", OPEN, "--json")
    found = json.loads(out)
    assert code == 0
    messages = found["request"]["messages"]
    assert [one["role"] for one in messages] == ["system", "user", "assistant", "tool"]
    assert found["request"]["model"] == "replay"
    assert found["request"]["tools"]
    why = found["why"]
    assert why["messages"] == 4
    assert why["bytes"] > 0
    assert why["tokens"]["reported"] is True
    assert why["tokens"]["next_request"] >= 128
    assert why["limits"]["sources"] == [{"tokens": 128_000, "source": "the known window of replay"}]
    assert why["limits"]["input_limit"] < why["limits"]["window"]


def test_request_in_words_names_layers_window_and_limit(run):
    code, out = run("request", OPEN)
    assert code == 0
    for part in ("system", "working", "window 128,000", "input at most", "compacts above", '"messages": ['):
        assert part in out


def test_request_shows_the_plan_as_a_table(run):
    plan = json.loads(run("request", OPEN, "--json")[1])["why"]["plan"]
    assert [one["layer"] for one in plan] == ["tools", "system", "semantic", "user_message", "working"]
    assert all(set(one) == {"layer", "span", "messages", "tokens", "state", "why"} for one in plan)
    out = run("request", OPEN)[1]
    for part in ("layer", "span", "why", "user message", "the briefing: never cut", "current.jsonl bytes 0 to", "kept"):
        assert part in out


def test_request_shows_a_plan_under_other_options_and_changes_nothing(home, run):
    from agent.context import MessageStore

    folder = home.settings.base_dir / "running" / OPEN
    store = MessageStore(folder, home.settings)
    for number in range(4):
        store.add_message("user", f"Word {number}.", kind="nudge")
    store.compact(strategy="summary", end_seq=store.last_seq - 3, summary="What was done.")
    store.close()
    before = snapshot(folder)

    def text(*options):
        messages = json.loads(run("request", OPEN, "--json", *options)[1])["request"]["messages"]
        return "\n".join(one["content"] for one in messages)

    words = ("What was done.", "Word 1.", "Word 2.", "Word 3.")
    assert [one in text() for one in words] == [True, True, True, True]
    assert [one in text("--no-summary") for one in words] == [False, True, True, True]
    assert [one in text("--messages", "2") for one in words] == [True, False, True, True]
    assert snapshot(folder) == before


def test_request_of_an_ended_conversation_says_that_nothing_is_sent(run):
    _, out = run("request", DONE)
    assert "the task has ended (completed)" in out
    assert "it is not sent" in out
    assert '"messages"' not in out


def test_request_of_a_task_that_is_over_the_limit_says_that_a_compaction_comes_first(home, run):
    home.config.write_text(
        home.config.read_text().replace("messages: rec.jsonl", "messages: rec.jsonl, context_length: 20000")
    )
    context = home.task("0d000000-0000-4000-8000-000000000004", 4)
    for number in range(6):
        context.get_message_store().add_message("assistant", f"{number} " + "word " * 3000, finish_reason="stop")
        context.get_message_store().add_message("user", "Go on.", kind="comment")
    context.close()
    _, out = run("request", "0d")
    assert "a compaction comes first" in out


def test_request_of_a_task_whose_call_is_open_says_that_its_outcome_is_unknown(home, run):
    context = home.task("0e000000-0000-4000-8000-000000000005", 5)
    call = {"id": "c2", "name": "run_command", "arguments": {"command": "make"}}
    context.get_message_store().add_message("assistant", "", tool_calls=[call], finish_reason="tool_calls")
    context.close()
    assert "outcome unknown" in run("request", "0e")[1]
    held = durable_files.lock(home.settings.base_dir / "running" / "0e000000-0000-4000-8000-000000000005" / "lock")
    try:
        assert "tools are at work" in run("request", "0e")[1]
    finally:
        durable_files.unlock(held)


def test_a_ledger_without_rows_beside_folders_of_tasks_names_the_repair(home, run):
    for path in home.settings.base_dir.glob("tasks.db*"):
        path.unlink()
    hint = "2 folder(s) of tasks have no row; stop the daemon and call `doctor --repair`, which makes them\n"
    assert run("tasks")[1].endswith(hint)
    (home.settings.base_dir / "tasks.db").touch()
    assert run("tasks") == (0, f"no tasks\n{hint}")


def test_a_pull_request_is_shown_without_the_marks_of_the_program(tmp_path):
    path = tmp_path / "1.md"
    path.write_text("# Round once\n\n<!-- makimono:0b000000:pull -->\n")
    assert _pull_text(path) == "# Round once"


def test_sigterm_ends_open_context_managers_first():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, sigterm_as_exit():
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == TERMINATED
    assert signal.getsignal(signal.SIGTERM) is before


def test_config_show_has_every_key_with_its_origin_and_no_secret(home, capsys):
    home.config.write_text(home.config.read_text() + "github: {token: ghp_0123456789abcdef}\n")
    assert main(["config", "show", "--config", str(home.config)]) == 0
    out = capsys.readouterr().out
    assert "ghp_0123456789abcdef" not in out
    line = next(one for one in out.splitlines() if one.startswith("github.token"))
    assert line.split() == ["github.token", "config.yaml", "********"]
    assert main(["config", "show", "--json", "--config", str(home.config)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"key": "llm.provider", "value": "replay", "origin": "config.yaml"} in rows


def test_config_show_works_where_a_variable_is_not_set(home, capsys, monkeypatch):
    monkeypatch.delenv("NOT_THERE", raising=False)
    home.config.write_text(home.config.read_text() + "verify: {command: '${NOT_THERE}'}\n")
    assert main(["config", "show", "--config", str(home.config)]) == 0
    assert "verify.command" in capsys.readouterr().out


def test_pause_resume_and_stop_reach_the_row(run):
    assert run("pause", OPEN[:4]) == (0, f"{OPEN}: pause requested\n")
    assert json.loads(run("resume", OPEN, "--json")[1]) == {"uuid": OPEN, "status": "running", "requested": "resume"}
    assert run("resume", OPEN)[0] == 2, "it runs, and nobody wants it to pause any more"
    assert run("stop", OPEN)[0] == 0
    assert "stop" in run("show", OPEN)[1]


def test_tasks_says_in_words_why_each_task_waits_and_show_too(home, run):
    from agent.values import TaskKey
    from agent.wiring.wiring import Wiring

    wiring = Wiring(home.settings)
    waiting = wiring.ledger.enqueue(TaskKey("local", "local", "default", "issue", "9", "x"), title="Waits")
    wiring.close()
    lines = run("tasks")[1].splitlines()
    assert f"{waiting[:8]}: no daemon works on {home.settings.base_dir}; `main.py run` starts one" in lines
    rows = {row["uuid"]: row for row in json.loads(run("tasks", "--json")[1])}
    assert [rows[uuid]["waits_for"] for uuid in (waiting, OPEN, DONE)] == ["daemon", None, None]
    run("pause", waiting)
    found = json.loads(run("show", waiting, "--json")[1])
    assert found["why"]["code"] == "paused"
    assert found["why"]["text"] == "command line paused it"
    first = run("show", waiting)[1].splitlines()[:3]
    assert [line.split()[0] for line in first] == ["status", "why", "next"]
    assert f"`resume {waiting[:8]}`" in first[2]
    run("resume", waiting)
    assert "paused it" not in run("show", waiting)[1]


def test_show_folds_a_turn_and_its_calls_and_puts_the_outcome_first(home, run):
    context = home.task("0c000000-0000-4000-8000-000000000003", 3)
    messages, tools = context.get_message_store(), context.get_tool_store()
    arguments = {"command": "make\x1b[2J test", "timeout": 5}
    calls = [{"id": name, "name": "run_command", "arguments": arguments} for name in ("a", "b", "c")]
    messages.add_message("user", "Mind the till.", kind="comment")
    messages.add_message("assistant", "", tool_calls=calls, usage=Usage(1500, 20), finish_reason="tool_calls")
    seq = tools.add_tool_call("run_command", arguments, "x" * 12_345, "error", 1200)
    messages.add_message("tool", "x" * 100, tool_call_id="a", tool_seq=seq)
    seq = tools.add_tool_call("run_command", arguments, "fine", "success", 7)
    messages.add_message("tool", "fine", tool_call_id="b", tool_seq=seq)
    context.heartbeat()
    context.fail("The build is broken.", "verify_failed")
    code, out = run("show", "0c")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["status", "failed"]
    assert lines[1] == "why          verify_failed: The build is broken."
    assert "`retry 0c000000`" in lines[2]
    turn = next(number for number, line in enumerate(lines) if line.endswith("[1,500+20 tk]"))
    assert "run_command make test → error, 12,345 characters, 1,200 ms  [1,500+20 tk]" in lines[turn]
    assert [line.strip() for line in lines[turn + 1 : turn + 3]] == [
        "run_command make test → 4 characters, 7 ms",
        "run_command make test → no result yet",
    ]
    assert lines[turn - 1].endswith("comment: Mind the till.")
    assert "x" * 100 not in out


def test_show_reads_the_end_of_a_long_task_alone(home, run):
    """Damage far from the end would be reported if it were read."""
    context = home.task("0c000000-0000-4000-8000-000000000003", 3)
    store = context.get_message_store()
    for number in range(40):
        store.add_message("assistant", f"Part {number}. " + "word " * 12_000, finish_reason="stop")
    context.close()
    path = home.settings.base_dir / "running" / context.uuid / "messages.jsonl"
    data = bytearray(path.read_bytes())
    data[10:20] = b"\0" * 10
    path.write_bytes(data)
    out = run("show", "0c")[1]
    assert "earlier turns are left out" in out
    assert "skipped" not in out
    assert [number for number in range(40) if f"Part {number}." in out] == list(range(20, 40))
    assert "line at byte 0 skipped: NUL bytes" in run("show", "0c", "--full")[1]


@pytest.mark.parametrize("form", ["lines", "json"])
def test_show_watch_in_a_pipe_tells_each_turn_once_and_ends_with_the_task(home, run, monkeypatch, form):
    from agent.cli import show
    from agent.values import End, Outcome

    context = home.task("0c000000-0000-4000-8000-000000000003", 3)
    steps = iter(
        (
            lambda: context.get_message_store().add_message("user", "Mind the till.", kind="comment"),
            lambda: None,
            lambda: context.get_message_store().add_message("assistant", "Nearly.", finish_reason="stop"),
            lambda: context.complete(Outcome(End.FINISHED)),
        )
    )
    monkeypatch.setattr(show.clock, "sleep", lambda _seconds: next(steps)())
    monkeypatch.setattr(show, "nobody_reads", lambda _stream: False)
    code, out = run("show", "0c", "--watch", *(["--json"] if form == "json" else []))
    assert code == 0
    lines = out.splitlines()
    if form == "json":
        told = [json.loads(line) for line in lines]
        assert [one.get("kind", one.get("status")) for one in told] == [
            *("message", "message", "turn", "effect", "running"),
            *("message", "turn", "completed"),
        ]
        assert told[2]["calls"][0]["tool"] == "read_file"
    else:
        assert [sum(text in line for line in lines) for text in ("I look first.", "Mind the till.", "Nearly.")] == [
            1,
            1,
            1,
        ]
        assert lines[-1] == "completed (finished)"


def test_show_of_a_file_that_cannot_be_read_shows_the_rest(home, run):
    path = home.settings.base_dir / "running" / OPEN / "tools.jsonl"
    path.unlink()
    path.mkdir()
    out = run("show", OPEN)[1]
    assert "note: tools.jsonl cannot be read: not a regular file" in out
    assert "I look first." in out
    assert "read_file" in out


def test_a_pause_is_named_once_and_only_while_it_lasts(home, run):
    from agent.values import TaskKey
    from agent.wiring.wiring import Wiring

    wiring = Wiring(home.settings)
    waiting = wiring.ledger.enqueue(TaskKey("local", "local", "default", "issue", "9", "x"), title="Waits")
    wiring.close()
    run("pause", waiting)
    assert "paused: paused" not in run("tasks")[1]
    assert re.search(r"^status +paused$", run("show", waiting)[1], re.MULTILINE)
    run("resume", waiting)
    assert re.search(r"^status +queued$", run("show", waiting)[1], re.MULTILINE)


def test_what_cannot_be_asked_of_a_task_is_a_usage_error(home, capsys):
    assert main(["pause", DONE, "--config", str(home.config)]) == 2
    assert "completed already" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_the_files_of_a_folder_that_cannot_be_read_are_named_beside_the_row(home, capsys):
    folder = home.settings.base_dir / "running" / OPEN
    folder.chmod(0)
    try:
        assert main(["show", OPEN, "--config", str(home.config)]) == 0
    finally:
        folder.chmod(0o700)
    shown = capsys.readouterr().out
    assert "Open one" in shown
    assert "note: messages.jsonl cannot be read: Permission denied" in shown


@pytest.mark.parametrize(("number", "said"), [("x", "'x' is no whole number"), ("0", "0 is too small; 1 is the least")])
def test_a_wrong_number_of_the_command_line_is_named_with_what_is_allowed(number, said, capsys):
    assert main(["tasks", "--limit", number]) == 2
    assert capsys.readouterr().err.endswith(f"Invalid value for '--limit': {said}\n")

"""`TaskContextManager`: folder, row and stores together, and the queries of docs/design/context.md, 8.2 on its rows."""

import os
import stat
from datetime import timedelta
from uuid import uuid4

import orjson
import pytest

from agent import clock, durable_files
from agent.context import TaskContextManager
from agent.context.stores import file_names
from agent.errors import ContextError, Fenced, LedgerError
from agent.store import db
from agent.values import End, Outcome, Status, TaskKey, Usage

UUID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.fixture
def open_task(config, counter, key):
    made = []

    def make(uuid=UUID, **more):
        task_id = more.pop("task_id", "27")
        settings = more.pop("config", config)
        made.append(TaskContextManager({**key, "task_id": task_id}, uuid, settings, counter=counter, **more))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


@pytest.fixture
def contexts(tmp_path):
    return tmp_path / "contexts"


@pytest.fixture
def sql(contexts):
    def run(statement):
        database = db.open_tasks(contexts)
        try:
            return database.execute(statement)
        finally:
            database.close()

    return run


def test_opening_makes_folder_metadata_and_row(open_task, contexts, sql):
    with clock.use(clock.FakeClock()):
        task = open_task(user="notfolder", title="Fix it")
    assert task.context_dir == contexts / "running" / UUID
    assert not task.resumed
    data = orjson.loads((task.context_dir / "metadata.json").read_bytes())
    assert data["uuid"] == UUID
    assert data["task_key"] == TaskKey("github", "notfolder", "coding_agent", "issue", "27").to_dict()
    assert data["created_at"] == "2026-01-31T09:15:00.000000Z"
    assert data["config"] == {
        "llm_provider": "openai",
        "model": "gpt-4o",
        "context_length": 128000,
        "compression_threshold": 0.7,
    }
    assert (data["user"], data["title"]) == ("notfolder", "Fix it")
    assert len(task.fence) == 24
    assert int(task.fence, 16) >= 0
    (row,) = sql("SELECT * FROM tasks")
    assert (row["status"], row["user"], row["model"], row["context_length"], row["attempt"]) == (
        "running",
        "notfolder",
        "gpt-4o",
        128000,
        1,
    )
    assert row["created_at"] == row["started_at"] == "2026-01-31T09:15:00.000000Z"
    assert row["process_id"] == data["process_id"]
    assert row["hostname"] == data["hostname"]


def test_files_are_private_and_folders_as_passable_as_they_must_be(open_task, contexts):
    task = open_task()
    task.get_message_store().add_message("user", "x")
    task.get_tool_store().add_tool_call("f", {}, "", "success", 1)
    for folder in (contexts, contexts / "running"):
        assert stat.S_IMODE(folder.stat().st_mode) == durable_files.passable()
    assert stat.S_IMODE(task.context_dir.stat().st_mode) == 0o700
    for file in task.context_dir.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE((contexts / "tasks.db").stat().st_mode) == 0o600


def test_a_task_is_resumed_from_its_files(open_task):
    first = open_task(user="u")
    first.get_message_store().add_message("user", "task")
    fence, metadata = first.fence, (first.context_dir / "metadata.json").read_bytes()
    first.close()
    second = open_task()
    assert second.resumed
    assert second.attempt == 2
    assert second.fence == fence
    assert (second.context_dir / "metadata.json").read_bytes() == metadata
    assert second.get_message_store().count_messages() == 1
    assert second.repairs == []
    assert second.column("user") == "u"


def test_what_a_dead_process_left_is_removed_and_reported(open_task):
    first = open_task()
    first.close()
    for name in (
        "request.json",
        "kept.json",
        "unsummarized.jsonl",
        "to_summarize.jsonl",
        "summary_prompt.txt",
        "formatted_messages.txt",
        "summary_request.txt",
        "context.jsonl",
        ".current.jsonl.77.tmp",
    ):
        (first.context_dir / name).write_text("left")
    second = open_task()
    files = {"metadata.json", "current.jsonl", *file_names()}
    assert {path.name for path in second.context_dir.iterdir()} == files
    assert sum("left by a process that died" in repair for repair in second.repairs) == 9


def test_a_folder_in_the_place_of_a_passing_file_is_removed_and_a_link_is_not_followed(open_task, tmp_path):
    first = open_task()
    first.close()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept").write_text("kept")
    planted = first.context_dir / "request.json" / "locked"
    planted.mkdir(parents=True)
    (planted / "file").write_text("planted")
    planted.chmod(0o500)
    (first.context_dir / ".current.jsonl.77.tmp").mkdir()
    (first.context_dir / "context.jsonl").symlink_to(tmp_path / "mine")
    second = open_task()
    assert not any(os.path.lexists(second.context_dir / name) for name in ("request.json", "context.jsonl"))
    assert list(second.context_dir.glob(".*.tmp")) == []
    assert (tmp_path / "mine" / "kept").read_text() == "kept"
    assert sum("left by a process that died" in repair for repair in second.repairs) == 3


def test_a_folder_in_the_place_of_metadata_is_put_aside(open_task):
    first = open_task()
    first.close()
    (first.context_dir / "metadata.json").unlink()
    (first.context_dir / "metadata.json").mkdir()
    assert len(open_task().fence) == 24
    assert (first.context_dir / "metadata.json.broken").is_dir()


def test_metadata_that_cannot_be_read_is_kept_aside_and_written_anew(open_task):
    first = open_task()
    first.close()
    (first.context_dir / "metadata.json").write_text("{broken")
    second = open_task()
    assert len(second.fence) == 24
    assert (second.context_dir / "metadata.json.broken").read_text() == "{broken"


def test_the_newest_attempt_fences_the_older_one(open_task):
    old = open_task()
    new = open_task()
    assert new.attempt == 2
    for write in (
        old.heartbeat,
        old.complete,
        lambda: old.update_status("failed"),
        lambda: old.set_columns(title="x"),
        lambda: old.paused("x"),
    ):
        with pytest.raises(Fenced, match="attempt 2"):
            write()
    assert new.context_dir.exists()
    assert new.heartbeat() is None


def test_a_claimed_row_needs_its_attempt(open_task, sql):
    open_task()
    with pytest.raises(Fenced):
        open_task(attempt=7)
    task = open_task(attempt=1)
    assert task.attempt == 1
    assert sql("SELECT attempt FROM tasks") == [{"attempt": 1}]


def test_a_second_open_task_of_the_same_key_is_refused_without_a_trace(open_task, contexts):
    open_task()
    with pytest.raises(LedgerError, match=UUID):
        open_task("other-uuid")
    assert not (contexts / "running" / "other-uuid").exists()
    open_task("other-uuid", task_id="28")


@pytest.mark.parametrize("uuid", ["../x", "", "a/b", ".hidden", "x" * 200])
def test_a_uuid_that_is_no_folder_name_is_refused(open_task, uuid):
    with pytest.raises(ContextError, match="cannot name a folder"):
        open_task(uuid)


def test_beat_writes_absolute_counters_and_returns_what_is_requested(open_task, sql):
    task = open_task()
    messages = task.get_message_store()
    messages.add_message("user", "task")
    messages.add_message(
        "assistant", None, tool_calls=[{"id": "a", "name": "f", "arguments": {}}], usage=Usage(1000, 200, 400)
    )
    task.get_tool_store().add_tool_call("f", {}, "r", "success", 1)
    messages.add_message("tool", "r")
    messages.add_message("assistant", "end", usage=Usage(2000, 100, 1000))
    messages.compact(strategy="mask", end_seq=3)
    task.update_statistics(llm_calls=50, tokens=9)
    with clock.use(clock.FakeClock()):
        assert task.heartbeat(60) is None
    (row,) = sql("SELECT * FROM tasks")
    assert (row["llm_call_count"], row["tool_call_count"], row["compression_count"]) == (2, 1, 1)
    assert (row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"], row["total_tokens"]) == (
        3000,
        300,
        1400,
        3300,
    )
    assert row["cost"] == pytest.approx((1600 * 2 + 1400 * 0.5 + 300 * 8) / 1e6)
    assert row["last_seq"] == 4
    assert (row["heartbeat_at"], row["lease_until"]) == ("2026-01-31T09:15:00.000000Z", "2026-01-31T09:16:00.000000Z")
    sql("UPDATE tasks SET requested = 'stop'")
    assert task.heartbeat() == "stop"
    assert task.totals().cost == row["cost"]
    task.close()
    again = open_task()
    assert again.counters()["total_tokens"] == 3300


def test_statistics_add_up_the_seeds_way_and_survive_the_end(open_task, sql):
    task = open_task()
    task.update_statistics(llm_calls=1, tokens=150)
    task.update_statistics(tool_calls=2, tokens=50, compressions=1)
    task.complete()
    (row,) = sql("SELECT llm_call_count, tool_call_count, total_tokens, compression_count FROM tasks")
    assert row == {"llm_call_count": 1, "tool_call_count": 2, "total_tokens": 200, "compression_count": 1}


@pytest.mark.parametrize(
    ("end", "status", "message", "code"),
    [
        (lambda task: task.complete(), "completed", None, None),
        (lambda task: task.complete(Outcome(End.FINISHED, title="Done")), "completed", None, None),
        (lambda task: task.fail("it broke \udcff\0"), "failed", "it broke \ufffd\ufffd", "error"),
        (lambda task: task.fail("no", "model_unreachable"), "failed", "no", "model_unreachable"),
        (lambda task: task.stopped("a person asked"), "stopped", "a person asked", None),
    ],
)
def test_every_end_sets_the_row_and_moves_the_folder(open_task, contexts, sql, end, status, message, code):
    task = open_task()
    store = task.get_message_store()
    store.add_message("user", "task")
    end(task)
    (row,) = sql("SELECT * FROM tasks")
    assert (row["status"], row["error_message"], row["error_code"]) == (status, message, code)
    assert row["completed_at"] >= row["started_at"]
    assert row["lease_until"] is None
    assert not (contexts / "running" / UUID).exists()
    assert task.context_dir == contexts / "completed" / UUID
    assert store.get_current_context_file().parent == task.context_dir
    assert (task.context_dir / "messages.jsonl").exists()
    assert store.count_messages() == 1
    with pytest.raises(ContextError, match="ended"):
        store.add_message("assistant", "late")
    with pytest.raises(ContextError, match="ended"):
        open_task()


def test_the_first_end_stands(open_task, sql):
    task = open_task()
    task.complete("finished")
    task.fail("too late")
    (row,) = sql("SELECT status, outcome, error_message FROM tasks")
    assert row == {"status": "completed", "outcome": "finished", "error_message": None}


def test_a_closed_row_with_its_folder_still_running_is_not_worked_on_again(open_task):
    task = open_task()
    task.update_status("completed")
    assert task.context_dir.exists()
    with pytest.raises(ContextError, match="is completed"):
        open_task()


def test_a_paused_task_stays_where_it_is_and_can_go_on(open_task, contexts, sql):
    task = open_task()
    task.get_message_store().add_message("user", "task")
    assert task.paused("asked") is Status.PAUSED
    (row,) = sql("SELECT status, outcome, requested, lease_owner, completed_at FROM tasks")
    assert row == {"status": "paused", "outcome": "asked", "requested": None, "lease_owner": None, "completed_at": None}
    assert (contexts / "running" / UUID).exists()
    task.close()
    assert open_task().column("status") == "running"


def paused_after(word, open_task, sql, reason):
    """(row, time of the notification) of a task that begins to wait after a person has requested `word`."""
    task = open_task()
    sql(f"UPDATE tasks SET requested = '{word}'")
    until = clock.now() + timedelta(seconds=60)
    status = task.paused(reason, "no room" if reason == "disk" else "", notify_at=until)
    (row,) = sql("SELECT * FROM tasks")
    assert row["status"] == status
    return row, clock.stamp(until)


@pytest.mark.parametrize("reason", ["asked", "disk", "paused"])
def test_a_pause_of_a_person_goes_before_what_a_task_waits_for(open_task, sql, reason):
    row, until = paused_after("pause", open_task, sql, reason)
    assert (row["status"], row["outcome"], row["requested"]) == ("paused", "paused", None)
    assert (row["completed_at"], row["tell_at"]) == (None, until)


@pytest.mark.parametrize("reason", ["asked", "disk", "paused"])
def test_a_stop_of_a_person_goes_before_what_a_task_waits_for(open_task, sql, reason):
    row, _ = paused_after("stop", open_task, sql, reason)
    assert (row["status"], row["outcome"], row["requested"]) == ("stopped", "stopped", None)
    assert row["completed_at"] == row["tell_at"] <= clock.stamp()
    assert (row["error_code"], row["error_message"]) == (None, None)
    with pytest.raises(ContextError, match="has ended"):
        open_task()


def test_columns_can_be_set_and_unknown_ones_are_named(open_task):
    task = open_task()
    task.set_columns(branch="makimono/27", url="https://example.invalid/1", title="T")
    task.set_columns(outcome="x")
    assert [task.column(name) for name in ("branch", "title", "outcome")] == ["makimono/27", "T", "x"]
    with pytest.raises(ValueError, match="status"):
        task.set_columns(status="completed")
    with pytest.raises(ValueError):
        task.update_status("done")


def test_without_storage_the_folder_is_temporary_and_the_row_stays(open_task, config, contexts, sql):
    config["context_storage"]["enabled"] = False
    task = open_task(config=config)
    folder = task.context_dir
    task.get_message_store().add_message("user", "task")
    assert folder.exists()
    assert contexts not in folder.parents
    task.complete()
    assert not folder.exists()
    assert sql("SELECT status FROM tasks") == [{"status": "completed"}]
    assert not (contexts / "completed").exists()


def test_a_masked_result_names_its_line_in_tools_jsonl(open_task):
    task = open_task()
    messages, tools = task.get_message_store(), task.get_tool_store()
    messages.add_message("user", "task")
    messages.add_message("assistant", None, tool_calls=[{"id": name, "name": "f", "arguments": {}} for name in "ab"])
    for name in "ab":
        tools.add_tool_call("f", {}, name * 300, "success", 1)
        messages.add_message("tool", name * 300, tool_name="f", tool_call_id=name)
    messages.compactions.add(strategy="mask", start_seq=1, end_seq=4)
    shown = [orjson.loads(line)["content"] for line in messages.current_path.read_bytes().splitlines()[-2:]]
    assert ["tools:1" in shown[0], "tools:2" in shown[1]] == [True, True]
    assert tools.result(2) == "b" * 300


def test_the_seeds_queries_run_and_mean_what_they_say(open_task, config, sql):
    fake = clock.FakeClock()
    with clock.use(fake):
        for number, (user, minutes, end) in enumerate(
            [("ann", 10, "complete"), ("ann", 20, "complete"), ("bob", 5, "fail"), ("bob", 0, None), ("eve", 0, None)]
        ):
            task = open_task(f"task-{number}", task_id=str(number), user=user)
            task.get_message_store().add_message("user", "t")
            task.get_message_store().add_message("assistant", "a", usage=Usage(100 * (number + 1), 0))
            fake.time += timedelta(minutes=minutes)
            if end == "complete":
                task.complete()
            elif end == "fail":
                task.fail("it broke")
            task.close()
            fake.time += timedelta(hours=1)
    running = sql(
        "SELECT uuid, task_source, owner, repo, task_type, task_id, started_at FROM tasks "
        "WHERE status = 'running' ORDER BY started_at DESC;"
    )
    assert [row["uuid"] for row in running] == ["task-4", "task-3"]
    per_user = sql("SELECT user, status, COUNT(*) as count FROM tasks GROUP BY user, status;")
    assert {(row["user"], row["status"]): row["count"] for row in per_user} == {
        ("ann", "completed"): 2,
        ("bob", "failed"): 1,
        ("bob", "running"): 1,
        ("eve", "running"): 1,
    }
    failed = sql(
        "SELECT uuid, error_message, created_at FROM tasks WHERE status = 'failed' ORDER BY created_at DESC LIMIT 10;"
    )
    assert [(row["uuid"], row["error_message"]) for row in failed] == [("task-2", "it broke")]
    assert sql("SELECT * FROM tasks WHERE uuid='task-1'")[0]["task_id"] == "1"
    assert sql("SELECT status, COUNT(*) AS n FROM tasks GROUP BY status;") == [
        {"status": "completed", "n": 2},
        {"status": "failed", "n": 1},
        {"status": "running", "n": 2},
    ]
    (average,) = sql(
        "SELECT AVG(julianday(completed_at) - julianday(started_at)) * 24 * 60 as avg_minutes FROM tasks "
        "WHERE status = 'completed';"
    )
    assert average["avg_minutes"] == pytest.approx(15, abs=0.001)
    (tokens,) = sql(
        "SELECT SUM(total_tokens) as total, AVG(total_tokens) as average FROM tasks WHERE status = 'completed';"
    )
    assert tokens == {"total": 300, "average": 150.0}


def test_no_file_and_no_row_of_a_task_holds_a_declared_secret_whoever_said_it(tmp_path):
    """The model repeats in its calls what an issue or a file showed it."""
    secret = "key-of-the-test-0123"
    config = {
        "context_storage": {"base_dir": str(tmp_path), "durability": "none"},
        "llm": {"provider": "openai", "openai": {"model": "m", "context_length": 8192, "api_key": secret}},
    }
    key = {"task_source": "local", "instance": "t", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "1"}
    context = TaskContextManager(key, str(uuid4()), config)
    store, args = context.get_message_store(), {"title": f"Use {secret}", "summary": "s"}
    store.add_message("system", "You help.")
    store.add_message("user", f"Use {secret}.")
    calls = [
        {"id": "c1", "name": "finish", "arguments": args},
        {"id": "c2", "name": "x", "arguments": {}, "invalid": secret},
    ]
    store.add_message("assistant", f"I use {secret}.", tool_calls=calls)
    context.get_tool_store().add_tool_call("finish", args, f"{secret} done", "error", 1, f"no {secret}")
    store.add_message("tool", f"{secret} done", tool_call_id="c1")
    store.add_message("tool", "no", tool_call_id="c2")
    context.complete(Outcome(End.FINISHED, title=f"Use {secret}"))
    context.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []
    assert b'"title":"Use ***"' in next(tmp_path.rglob("tools.jsonl")).read_bytes()


def test_a_secret_of_digits_alone_leaves_the_records_legal(tmp_path):
    """As a number in JSON it has no quotes, and neither has the mask."""
    config = {
        "context_storage": {"base_dir": str(tmp_path), "durability": "none"},
        "llm": {"provider": "openai", "openai": {"model": "m", "context_length": 8192, "api_key": "9081726354"}},
    }
    key = {"task_source": "local", "instance": "t", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "1"}
    with TaskContextManager(key, str(uuid4()), config) as context:
        store, args = context.get_message_store(), {"pin": 9081726354, "pins": [9081726354, True, 1.5]}
        store.add_message("system", "You help.")
        store.add_message("user", "Go.")
        seq = store.add_message("assistant", "", tool_calls=[{"id": "c1", "name": "x", "arguments": args}])
        context.get_tool_store().add_tool_call("x", args, "done", "success", 1)
        (record,) = [one for one in store.records() if one["seq"] == seq]
        masked = {"pin": "***", "pins": ["***", True, 1.5]}
        assert orjson.loads(record["tool_calls"][0]["function"]["arguments"]) == masked
        assert context.get_tool_store().last()["args"] == masked


@pytest.mark.parametrize("end", ["complete", "fail", "stopped"])
def test_nothing_that_passes_is_left_at_the_end(open_task, end):
    task = open_task()
    task.get_message_store().add_message("user", "u")
    for name in ("kept.json", "request.json", "request-3.json", "request-3.jsonl", "context.jsonl"):
        (task.context_dir / name).write_text("left")
    (task.context_dir / ".git.tmp" / "objects").mkdir(parents=True)
    begun = task.get_request_store().begin(purpose="turn", provider="openai", model="m", tokens=5)
    task.get_request_store().end(begun, status="ok", usage=Usage(5, 1))
    getattr(task, end)(*(["why"] if end == "fail" else []))
    left = {path.name for path in task.context_dir.iterdir()}
    assert task.context_dir.parent.name == "completed"
    kept = {"metadata.json", "messages.jsonl", "current.jsonl", "requests.jsonl", "end.json"}
    assert kept <= left <= kept | {*file_names()}


def test_counters_go_on_from_the_row_where_the_files_are_not_here(open_task, contexts, sql):
    """As on another host: what the row has and the folder has not was paid all the same."""
    first = open_task()
    store = first.get_message_store()
    store.add_message("system", "You are.")
    store.add_message("user", "Do it.")
    for number in range(3):
        store.add_message("assistant", f"Step {number}", usage=Usage(100, 10))
    first.heartbeat()
    paid = first.totals()
    assert (paid.turns, paid.tokens) == (3, 330)
    assert first.elsewhere.turns == 0
    first.close()
    (contexts / "running" / UUID).rename(contexts / "elsewhere")
    second = open_task()
    assert second.elsewhere == second.totals() == paid
    assert second.elsewhere.turns == 3
    second.get_message_store().add_message("assistant", "Again", usage=Usage(50, 5))
    second.heartbeat()
    assert (second.totals().turns, second.totals().tokens) == (4, 385)
    assert second.totals().cost == pytest.approx(paid.cost + (50 * 2.0 + 5 * 8.0) / 1e6)
    (row,) = sql("SELECT * FROM tasks")
    assert (row["llm_call_count"], row["total_tokens"]) == (4, 385)
    second.close()
    # The first host comes back with its old folder: what was done since counts too.
    (contexts / "running" / UUID).rename(contexts / "newer")
    (contexts / "elsewhere").rename(contexts / "running" / UUID)
    third = open_task()
    assert (third.totals().turns, third.elsewhere.turns, third.totals().tokens) == (4, 1, 385)


def test_a_folder_that_knows_more_than_the_row_is_believed(open_task):
    first = open_task()
    first.get_message_store().add_message("assistant", "Never counted", usage=Usage(100, 10))
    first.close()
    again = open_task()
    assert again.elsewhere.turns == 0
    assert again.elsewhere.cost == 0
    assert again.totals().tokens == 110


def test_the_title_of_the_issue_stays_when_the_pull_request_has_another(open_task, sql):
    task = open_task(title="Totals are off")
    task.complete(Outcome(End.FINISHED, title="Round the sum once"))
    assert sql("SELECT title FROM tasks") == [{"title": "Totals are off"}]

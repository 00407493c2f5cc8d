"""What the pages show: lists, parts of a task, and texts from outside that stay texts."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from html.parser import HTMLParser
from threading import Event
from types import SimpleNamespace

import pytest
from cli_home import DONE, EVIL, OPEN, SHOWN, Home
from page_home import served

from agent.config import load
from agent.context.deliberations import DeliberationStore
from agent.context.recalled import RecalledStore
from agent.context.requests import RequestStore
from agent.dashboard import app
from agent.dashboard.conversation import cut
from agent.dashboard.health_page import HealthPage
from agent.dashboard.rendering import inert
from agent.dashboard.task_export import write_page
from agent.dashboard.task_parts import CHANGE_SECONDS, MOST_DIFF, MOST_LINES, _diff, change
from agent.errors import HostError
from agent.forge.rate_limiter import RateLimiter
from agent.gitcmd import git
from agent.security.redact import Redactor
from agent.store.configured_ledger import LedgerKind
from agent.values import Usage
from agent.work import changes

SECRET = "sk-of-this-test-0123456789"
HOSTILE = f"<script>alert(1)</script>\"'><img src=x onerror=alert(2)> javascript:alert(3) {EVIL} {SECRET}"
AUTHOR = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
FULL = "0c000000-0000-4000-8000-000000000003"


class Tags(HTMLParser):
    """Every tag of a page, and whether it is well formed."""

    VOID = ("meta", "link", "input", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.ids = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("home")).both()
    config = made.config.read_text().replace(
        "replay: {messages: rec.jsonl}", "replay: {messages: rec.jsonl}, openai: {api_key: " + SECRET + "}"
    )
    made.config.write_text(config)
    full(made)
    return made


def full(home):
    """A task with every kind of record, each with hostile text."""
    context = home.task(FULL, 3, title=HOSTILE)
    folder = context.context_dir
    messages, tools = context.get_message_store(), context.get_tool_store()
    items = [{"text": HOSTILE, "status": "in_progress"}, {"text": "Then this", "status": "pending"}]
    calls = [
        {"id": "p1", "name": "update_plan", "arguments": {"items": items}},
        {"id": "p2", "name": HOSTILE[:60], "arguments": {"path": HOSTILE}},
    ]
    messages.add_message("assistant", HOSTILE, tool_calls=calls, usage=Usage(300, 20), finish_reason="tool_calls")
    seq = tools.add_tool_call("update_plan", {"items": items}, HOSTILE, "success", 3)
    messages.add_message("tool", HOSTILE, tool_call_id="p1", tool_seq=seq)
    seq = tools.add_tool_call("run_command", {"command": HOSTILE}, HOSTILE, "error", 5, error=HOSTILE)
    messages.add_message("tool", HOSTILE * 200, tool_call_id="p2", tool_seq=seq)
    messages.compact(strategy="summary", end_seq=4, summary=HOSTILE, carried={"plan": items, HOSTILE: HOSTILE})
    requests = RequestStore(folder)
    for tokens in (1000, 2000, 3000):
        begun = requests.begin(purpose="turn", provider="openai", model=HOSTILE, tokens=tokens)
        requests.end(begun, status="ok", usage=Usage(tokens, 10), duration_ms=1500, first_token_ms=200, error=HOSTILE)
    requests.close()
    recalled = RecalledStore(folder)
    hit = {"id": HOSTILE, "kind": "record", "layer": "x", "score": 0.5, "source": HOSTILE, "tokens": 4}
    recalled.add(
        "briefing", HOSTILE, hits=[hit], dropped=[{**hit, "why": HOSTILE}], missing={HOSTILE: HOSTILE}, text=HOSTILE
    )
    recalled.close()
    deliberations = DeliberationStore(folder)
    payload = {"vote": "DENY", "reason": HOSTILE, "conditions": [HOSTILE]}
    deliberations.add("statement", 1, persona=HOSTILE, phase="VOTING", round=1, payload=payload, model=HOSTILE)
    deliberations.add("decision", 1, result={"decision": "DENIED", "reason": HOSTILE, "all_conditions": []})
    deliberations.close()
    context.get_effect_store().once(HOSTILE, lambda: None, lambda: {"url": HOSTILE})
    (folder / "worker.log").write_text(
        json.dumps({"timestamp": "2026-01-31T09:15:00Z", "level": "info", "event": HOSTILE, "x": HOSTILE})
        + "\nno json\n"
    )
    name = "a/<b>onerror=x"
    (folder / "changes.patch").write_text(
        f"diff --git a/{name} b/{name}\nindex 1..2 100644\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-old\n+{HOSTILE}\n"
    )
    context.heartbeat()
    context.close()


@pytest.fixture(scope="module")
def page(home):
    with served(load(home.config, environ={})) as found:
        yield found


PARTS = (
    *("", "/plan", "/change", "/compactions", "/compactions/1", "/requests", "/memory", "/deliberations", "/effects"),
    *("/log", "/messages/5", "/messages/7"),
)


@pytest.mark.parametrize("part", PARTS)
def test_text_from_outside_is_text_on_every_part_of_a_task(page, part):
    text = page.get(f"/tasks/{FULL}{part}").text
    tags = Tags(text)
    assert [tag for tag, _ in tags.found if tag == "script"] == ["script"]  # the page's own
    assert not [tag for tag, _ in tags.found if tag == "img"]
    assert not [name for _, attrs in tags.found for name in attrs if name.startswith("on") or name == "style"]
    assert all(
        value.startswith(("/", "#", "http", "data:,"))
        for _, attrs in tags.found
        for name, value in attrs.items()
        if name == "href"
    )
    assert len(tags.ids) == len(set(tags.ids))
    assert "alert(1)" in text  # it is there, as a text
    assert SECRET not in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    shown = page.json(f"/tasks/{FULL}{part}")
    assert SECRET not in json.dumps(shown)
    assert shown["problems"] == []


def test_the_list_is_inert_too(page):
    text = page.get("/tasks").text
    tags = Tags(text)
    assert [tag for tag, _ in tags.found if tag == "script"] == ["script"]
    assert "&lt;script&gt;alert(1)" in text
    assert SECRET not in text
    assert SHOWN in text


def test_the_list_is_json_too(page):
    shown = page.json("/tasks")
    assert [one["uuid"] for one in shown["tasks"]] == [FULL, DONE, OPEN]
    assert shown["counts"] == {"queued": 0, "running": 2, "paused": 0, "completed": 1, "failed": 0, "stopped": 0}
    assert shown["tasks"][1]["cost"] is None  # the provider has no price, so the cost is not 0


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("status=completed", [DONE]),
        ("text=open+ONE", [OPEN]),
        ("text=alice&sort=created_at&order=asc", [OPEN, DONE, FULL]),
        ("text=%25", []),
        ("text=100%25_", []),
        ("repository=local/default", [FULL, DONE, OPEN]),
        ("repository=no/such", []),
        ("host=nowhere", []),
        ("sort=total_tokens", [FULL, DONE, OPEN]),
        ("status=&sort=&order=&page=0", [FULL, DONE, OPEN]),
        ("page=2", []),
        ("page=99999999999999999999", []),
    ],
)
def test_the_list_is_filtered_searched_and_sorted(page, query, expected):
    assert [one["uuid"] for one in page.json(f"/tasks?{query}")["tasks"]] == expected


def test_a_filter_that_is_not_allowed_is_refused_with_the_allowed_values(page):
    answer = page.get("/tasks?status=runing")
    assert answer.status == 400
    assert "allowed are queued, running, paused, completed, failed, stopped" in answer.text
    assert [page.get(f"/tasks?{query}").status for query in ("sort=;drop", "order=x", "page=-1")] == [400] * 3


def test_a_long_list_has_pages_that_lead_to_each_other(tmp_path):
    home = Home(tmp_path / "h")
    ledger = LedgerKind.from_settings(home.settings).open()
    key = {"task_source": "local", "instance": "x", "owner": "o", "repo": "r", "task_type": "issue"}
    made = [ledger.enqueue({**key, "task_id": str(n)}, title=f"Task {n}") for n in range(120)]
    ledger.close()
    with served(home.settings) as page:
        seen, address = [], "/tasks?sort=title&order=asc"
        while address:
            shown = page.json(address)
            seen += [one["uuid"] for one in shown["tasks"]]
            assert shown["total"] == 120
            address = shown["links"]["next"]
        assert sorted(seen) == sorted(made)
        assert len(shown["tasks"]) == 20
        assert "page=2" in shown["links"]["previous"]
        assert "no daemon works on" in shown["tasks"][0]["waits"][0]


def test_the_timeline_has_calls_with_their_results_and_the_compaction_in_its_place(page):
    shown = page.json(f"/tasks/{FULL}")["shown"]
    entry = next(one for one in shown["entries"] if one["seq"] == 5)
    assert [call["result"]["status"] for call in entry["calls"]] == ["success", "error"]
    assert entry["calls"][1]["result"]["cut"] > 0
    assert [cut["id"] for one in shown["entries"] for cut in one.get("compactions", ())] == [1]
    assert shown["chart"]["count"] == 3
    assert "<polyline" in page.get(f"/tasks/{FULL}").text


def test_a_part_of_a_conversation_begins_where_it_is_asked_to(page):
    assert [one["seq"] for one in page.json(f"/tasks/{FULL}?at=5")["shown"]["entries"]] == [5, 8]
    older = page.json(f"/tasks/{FULL}?before=5")["shown"]
    assert [one["seq"] for one in older["entries"]] == [1, 2, 3]
    assert (older["has_older"], older["has_newer"]) == (False, True)


@pytest.mark.parametrize("query", ["before=x", "before=-1", "at=5.5", "at=1e3", "before=9999999999999999", "at=%C2%B2"])
@pytest.mark.parametrize("part", ["", "/requests"])
def test_a_number_of_a_record_that_is_none_is_refused_with_the_allowed_values(page, part, query):
    answer = page.get(f"/tasks/{FULL}{part}?{query}")
    assert answer.status == 400
    assert "allowed are whole numbers" in answer.text
    assert page.get(f"/tasks/{FULL}{part}?{query.partition('=')[0]}=").status == 200, "an empty one counts as missing"


def test_a_compaction_shows_before_and_after(page):
    shown = page.json(f"/tasks/{FULL}/compactions/1")["shown"]
    assert [one["seq"] for one in shown["before"]] == [1, 2, 3, 4]
    assert "alert(1)" in shown["summary"]["text"]
    assert shown["carried"][0]["name"] == "plan"


def test_the_plan_and_the_change(page):
    assert [one["status"] for one in page.json(f"/tasks/{FULL}/plan")["shown"]["items"]] == ["in_progress", "pending"]
    (file,) = page.json(f"/tasks/{FULL}/change")["shown"]["files"]
    assert (file["added"], file["removed"]) == (1, 1)
    why = page.json(f"/tasks/{DONE}/change")["shown"]["why"]
    assert why == "the task has not pushed a commit yet"


def test_requests_have_latencies_and_tokens(page):
    first = page.json(f"/tasks/{FULL}/requests")["shown"]["records"][0]
    assert (first["seq"], first["duration_ms"], first["usage"]["prompt_tokens"]) == (3, 1500, 3000)


def test_a_beginning_of_a_uuid_is_enough_and_an_unknown_one_is_not_found(page):
    assert page.json(f"/tasks/{DONE[:8]}")["task"]["uuid"] == DONE
    for path in (
        "/tasks/ffffffff",
        "/tasks/..%2f..%2fetc",
        f"/tasks/{DONE}/messages/99",
        f"/tasks/{DONE}/compactions/1",
    ):
        assert page.get(path).status == 404


def test_what_would_be_sent_is_shown_by_layer(page):
    shown = page.json(f"/tasks/{OPEN}/request")["shown"]
    assert {"system", "user_message", "working"} <= {one["layer"] for one in shown["why"]["plan"]}
    assert "Fix the totals" in shown["request"]


def test_the_health_page_says_that_no_daemon_is_there_and_shows_the_plots(page):
    shown = page.json("/health")
    assert (shown["daemon"]["live"], shown["problems"]) == (False, [])
    assert [one["status"] for one in shown["groups"]] == ["completed", "running"]
    assert shown["days"]["total_tasks"] == 3
    text = page.get("/health").text
    Tags(text)
    assert text.count("<svg") == 3


def test_the_checks_of_the_machine_run_once_at_a_time_and_hold_no_other_page_long(home, monkeypatch):
    running, go_on = Event(), Event()

    def checks(*_):
        running.set()
        assert go_on.wait(30)
        return {"checks": []}

    monkeypatch.setattr("agent.dashboard.helper_process.run", checks)
    monkeypatch.setattr("agent.dashboard.helper_process.WAIT_SECONDS", 0.05)
    health = HealthPage(home.settings, None)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(health.doctor)
        assert running.wait(30)
        with pytest.raises(HostError, match="another page"):
            health.doctor()
        go_on.set()
        assert first.result() == health.doctor()


def test_memory_that_nobody_has_used_is_said_to_be_empty(page):
    assert "No task has left anything" in page.get("/memory").text
    assert page.get("/memory/mem-nothing").status == 404


def test_what_a_task_waits_for_is_what_the_other_commands_say_and_a_question_is_shown(tmp_path):
    home = Home(tmp_path / "h")
    context = home.task(OPEN, 1, title="Asks")
    call = {"id": "q1", "name": "ask_user", "arguments": {"question": "Half <b>up</b>?"}}
    context.get_message_store().add_message("assistant", None, tool_calls=[call])
    context.get_message_store().add_message("tool", "[asked]", tool_call_id="q1")
    context.heartbeat()
    context.close()
    ledger = LedgerKind.from_settings(home.settings).open()
    ledger.db.execute("UPDATE tasks SET status = 'paused', outcome = 'asked'")
    ledger.close()
    with served(home.settings) as page:
        shown = page.json(f"/tasks/{OPEN}")
        assert (shown["task"]["waits_for"], shown["question"]) == ("question", "Half <b>up</b>?")
        assert "Half &lt;b&gt;up&lt;/b&gt;?" in page.get(f"/tasks/{OPEN}").text
        listed = page.json("/tasks")
        assert listed["tasks"][0]["waits"] == shown["task"]["waits"]
        assert listed["waiting"] == [f"no daemon works on {home.settings.base_dir}; `main.py run` starts one"]


def test_the_limits_that_hosts_told_are_on_the_health_page(tmp_path):
    home = Home(tmp_path / "h").both()
    limiter = RateLimiter(home.settings.base_dir / "limits", "github.com")
    limiter.note_budget("core", remaining=7, limit=60, reset_in=300)
    limiter.slow_down("search", 90, "secondary limit")
    with served(home.settings) as page:
        shown = {one["bucket"]: one for one in page.json("/health")["limits"]}
        assert (shown["core"]["remaining"], shown["core"]["seconds"]) == (7, 0)
        assert shown["search"]["why"] == "secondary limit"
        assert "secondary limit" in page.get("/health").text
        assert "github.com" in page.json("/tasks")["waiting"][1]


@pytest.mark.parametrize("between", ["\x1b[0m", "\u200b", "\u202e", "\x00", ""])
def test_a_secret_is_masked_though_a_character_that_is_removed_is_inside_it(between):
    redact = Redactor([SECRET])
    shown = inert({"a": [f"key {SECRET[:9]}{between}{SECRET[9:]} end"]}, redact)
    assert SECRET not in shown["a"][0]
    assert shown["a"][0].endswith("end")


def test_a_text_is_cut_at_white_space_so_that_no_half_of_a_secret_is_left():
    redact = Redactor([SECRET])
    for shift in range(0, 60, 3):
        text = (
            "word " * 400 + "x" * shift + f" {SECRET} " + "word " * 3000 + f" {SECRET} " + "x" * shift + " word" * 180
        )
        for most in (2000 * 3 // 2 + shift, 3000):
            shown = inert(cut(text, most), redact)
            assert "0123" not in shown["text"]
            assert shown["cut"] > 0
    assert cut("x" * 10_000, 3000)["cut"] == 7000
    assert cut("short", 3000) == {"text": "short", "cut": 0}


# --- damage --------------------------------------------------------------------------------------------------


def test_damaged_files_show_what_can_be_read_and_are_named(tmp_path):
    home = Home(tmp_path / "h").both()
    folder = home.settings.base_dir / "completed" / DONE
    lines = (folder / "messages.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = b"\0" * 40 + b"\n"
    lines.insert(3, b"nonsense\n")
    (folder / "messages.jsonl").write_bytes(b"".join(lines) + b'{"seq": 99, "unfinished')
    (folder / "tools.jsonl").write_bytes(b"[1]\n")
    with served(home.settings) as page:
        shown = page.json(f"/tasks/{DONE}")["shown"]
        assert [one["seq"] for one in shown["entries"]] == [1, 3, 5]
        assert len([one for one in shown["damage"] if one.startswith("messages.jsonl")]) == 2
        assert "NUL bytes" in page.get(f"/tasks/{DONE}").text


def test_records_of_the_wrong_shape_break_no_page(tmp_path):
    home = Home(tmp_path / "h").both()
    folder = home.settings.base_dir / "completed" / DONE
    deep = json.loads("[" * 900 + "]" * 900)  # deeper than JSON can be written
    call = {"id": [1], "function": {"name": {}, "arguments": json.dumps({"deep": deep})}}
    odd = [None, [], {}, 7, "x", [None], {"a": {"b": []}}, True, 1e308, 2**63, deep, [call], {"plan": [{"text": 5}]}]
    for name, names, key in (
        (
            "messages.jsonl",
            ("role", "content", "tool_calls", "usage", "request", "tool_seq", "images", "timestamp"),
            "seq",
        ),
        ("requests.jsonl", ("usage", "model", "cost", "duration_ms", "error", "purpose", "started_at"), "seq"),
        (
            "compactions.jsonl",
            ("start_seq", "end_seq", "at_seq", "carried", "summary_id", "requests", "strategy"),
            "id",
        ),
        ("recalled.jsonl", ("hits", "dropped", "missing", "text", "query", "tokens"), "seq"),
        ("deliberations.jsonl", ("payload", "result", "kind", "deliberation"), "seq"),
        ("effects.jsonl", ("receipt", "detail", "name", "state"), "seq"),
        ("tools.jsonl", ("args", "result", "tool", "status"), "seq"),
    ):
        records = [
            {key: n * len(odd) + k + 1, field: value} for n, field in enumerate(names) for k, value in enumerate(odd)
        ]
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in records))
    (folder / "worker.log").write_text('[]\n7\n{"event": {}}\n')
    with served(home.settings) as page:
        for part in (*PARTS, "/messages/20", "/messages/30", *(f"/compactions/{n}" for n in (1, 10, 20, 30, 40, 50))):
            answer = page.get(f"/tasks/{DONE}{part}")
            assert answer.status == 200, (part, answer.text[-300:])
            Tags(answer.text)
            page.json(f"/tasks/{DONE}{part}")
    assert write_page(home.settings, DONE, tmp_path / "page.html").size > 0


def test_what_the_commands_of_a_task_put_in_place_of_its_files_is_neither_followed_nor_waited_for(tmp_path):
    home = Home(tmp_path / "h").both()
    folder = home.settings.base_dir / "completed" / DONE
    (tmp_path / "secret").write_text("of another file\n")
    (folder / "changes.patch").unlink(missing_ok=True)
    (folder / "changes.patch").symlink_to(tmp_path / "secret")
    for name in ("messages.jsonl", "worker.log", "effects.jsonl", "metadata.json"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    with closing(LedgerKind.from_settings(home.settings).open()) as ledger:
        ledger.db.execute("DELETE FROM tasks WHERE uuid = :uuid", uuid=DONE)
    with served(home.settings) as page:
        for part in ("", "/log", "/effects", "/messages/1"):
            assert "not a regular file" in page.get(f"/tasks/{DONE}{part}").text
        change = page.get(f"/tasks/{DONE}/change").text
    assert "symbolic links" in change
    assert "of another file" not in change
    assert write_page(home.settings, DONE, tmp_path / "page.html").size > 0
    whole = (tmp_path / "page.html").read_text()
    assert "not a regular file" in whole
    assert "of another file" not in whole


def test_of_a_change_of_many_lines_the_first_are_shown():
    shown = _diff(b"diff --git a/x b/x\n" + b"+a\n" * 400_000, "a test")
    assert sum(len(one["lines"]) for one in shown["files"]) == MOST_LINES - 1
    assert "10,000 lines" in shown["why"]
    assert _diff(b"diff --git a/x b/x\n+a\n", "a test")["why"] == ""
    assert _diff(b"\n", "a test")["why"] == "nothing differs"


def test_git_writes_no_more_of_a_large_change_than_is_shown_and_not_for_longer_than_a_page_may_take(tmp_path):
    git_dir = tmp_path / "git"
    run = partial(git, git_dir=git_dir)
    git("init", "-q", "--bare", str(git_dir))
    (tmp_path / "large.txt").write_text(("x" * 999 + "\n") * 4000)
    run("add", "large.txt", work_tree=tmp_path)
    old = run("commit-tree", "-m", "x", changes.empty_tree(git_dir), env=AUTHOR).output.decode().strip()
    tree = run("write-tree").output.decode().strip()
    new = run("commit-tree", "-m", "x", tree, env=AUTHOR).output.decode().strip()
    row = SimpleNamespace(base_commit=old, head_commit=new, branch="x")
    assert change(tmp_path, row)["why"] == "only the first 1 MiB are shown"
    assert MOST_DIFF < sum(map(len, changes.diff(git_dir, old, new, most=MOST_DIFF + 1))) < 2 * MOST_DIFF
    assert "was ended after" in change(tmp_path, row, 0.0)["why"]
    assert CHANGE_SECONDS < app.PAGE_SECONDS


def test_numbers_of_thousands_of_digits_are_no_numbers(page):
    long = "9" * 5000
    assert page.get(f"/tasks?page={long}").status == 200
    for kind in ("messages", "compactions"):
        assert page.get(f"/tasks/{FULL}/{kind}/{long}").status == 404


def test_a_task_whose_row_is_lost_is_shown_from_its_folder(tmp_path, monkeypatch):
    home = Home(tmp_path / "h").both()
    ledger = LedgerKind.from_settings(home.settings).open()
    ledger.db.execute("DELETE FROM tasks")
    ledger.close()
    with served(home.settings) as page:
        for _ in range(2):
            shown = page.json(f"/tasks/{DONE}")
            assert "no row of this task" in shown["problems"][0]
            assert len(shown["shown"]["entries"]) == 4
            # the row is removed between two queries
            monkeypatch.setattr("agent.taskqueue.ledger.Ledger.resolve", lambda *_: DONE)


def test_a_damaged_row_is_listed_with_the_reason(tmp_path):
    home = Home(tmp_path / "h").both()
    ledger = LedgerKind.from_settings(home.settings).open()
    ledger.db.execute("UPDATE tasks SET total_tokens = 'many' WHERE uuid = :uuid", uuid=DONE)
    ledger.close()
    with served(home.settings) as page:
        row = page.json("/tasks")["tasks"][0]
        assert "total_tokens" in row["damage"]
        assert page.get("/tasks").status == 200
        assert page.get(f"/tasks/{DONE}").status == 200


def test_a_base_dir_without_a_ledger_is_an_empty_page(tmp_path):
    home = Home(tmp_path / "h")
    with served(home.settings) as page:
        shown = page.json("/tasks")
        assert shown["tasks"] == []
        assert "no tasks.db yet" in shown["problems"][0]
        assert page.get("/health").status == page.get("/tasks").status == 200
    assert not (home.settings.base_dir / "tasks.db").exists()


def test_a_ledger_that_is_no_database_is_named(tmp_path):
    home = Home(tmp_path / "h").both()
    for path in home.settings.base_dir.glob("tasks.db*"):
        path.write_bytes(b"nonsense" * 1000)
    with served(home.settings) as page:
        assert "tasks.db" in page.json("/tasks")["problems"][0]
        assert page.json(f"/tasks/{DONE}")["shown"]["entries"]
        assert "cannot be read" in page.json(f"/tasks/{DONE}/change")["shown"]["why"]

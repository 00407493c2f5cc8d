"""The page in Chromium with 10,000 tasks, and with a task of 200,000 messages: it opens, and search and pages work."""

from contextlib import closing

import pytest
from cli_home import OPEN, Home
from page_browser import browser, dashboard

from agent.store.ledgers import LedgerKind

TASKS, MESSAGES = 10_000, 200_000
ROWS = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO tasks (uuid, task_source, instance, owner, repo, task_type, task_id, status, created_at, title)
SELECT printf('%08x-0000-4000-8000-000000000000', n), 'github', 'github.com', 'example', 'billing', 'issue',
    CAST(n AS TEXT), 'completed', printf('2026-01-%02dT00:00:%02d.000000Z', 1 + n % 28, n % 60), 'Task ' || n || '.'
FROM numbers
"""
LINE = '{"seq":%d,"role":"%s","content":"Message %d.","timestamp":"2026-01-31T09:15:00.000000Z","tokens":4}\n'


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("home"))
    made.task(OPEN, 1, title="A long task").close()
    with closing(LedgerKind.of(made.settings).open()) as ledger:
        ledger.db.execute(ROWS, count=TASKS)
    messages = made.settings.base_dir / "running" / OPEN / "messages.jsonl"
    roles = ("assistant", "user")
    first = messages.read_bytes().count(b"\n") + 1
    with messages.open("a", encoding="utf-8") as file:
        file.writelines(LINE % (n, roles[n % 2], n) for n in range(first, MESSAGES + 1))
    return made


@pytest.fixture(scope="module")
def site(home):
    with dashboard(home.config) as address:
        yield address


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


def follow(chromium, selector):
    link = chromium.one(selector)
    link.click()
    chromium.until_gone(link)


def test_among_ten_thousand_tasks_pages_and_the_search_lead_to_each(chromium, site):
    chromium.open(f"{site}/tasks?status=completed&sort=title&order=asc")
    assert "10,000 tasks, page 1" in chromium.text("caption")
    first = [one.text for one in chromium.all("table.tasks th a[href^='/tasks/']")]
    assert len(first) == 50
    follow(chromium, "a[rel=next]")
    second = [one.text for one in chromium.all("table.tasks th a[href^='/tasks/']")]
    assert "page 2" in chromium.text("caption")
    assert first + second == sorted(first + second)
    assert len(set(first + second)) == 100
    field = chromium.one("#text")
    field.send_keys("task 7777.")
    field.submit()
    chromium.until_gone(field)
    assert [one.text for one in chromium.all("table.tasks th a[href^='/tasks/']")] == ["Task 7777."]
    assert chromium.watch(site) == ([], [])


def test_a_task_of_two_hundred_thousand_messages_is_read_from_both_ends(chromium, site):
    chromium.open(f"{site}/tasks/{OPEN}")
    assert "Message 200000." in chromium.text("#shown")
    assert "to 200,000 of 200,000" in chromium.text("#shown")
    assert len(chromium.all("article.entry")) == 60
    follow(chromium, "a[rel=prev]")
    assert "Messages 199,881 to 199,940 of 200,000" in chromium.text("#shown")
    follow(chromium, "a[href$='at=1']")
    assert "Messages 1 to" in chromium.text("#shown")
    assert "You are an agent." in chromium.run("return document.body.textContent")
    follow(chromium, "a[rel=next]")
    assert chromium.one("article.entry h3").text.startswith("61 ")
    chromium.open(f"{site}/tasks/{OPEN}/messages/123456")
    assert "Message 123456." in chromium.text("#shown")
    assert chromium.watch(site) == ([], [])

"""The page in Chromium as a person uses it: login, keyboard, live changes, orders, and without scripts; with 10,000
tasks, and a task of 200,000 messages; and the pictures of docs/dashboard.md.

`MAKIMONO_PICTURES=1` writes these pictures again.
"""

import os
from contextlib import closing
from pathlib import Path

import pytest
from cli_home import OPEN, Home
from page_browser import NARROW, WIDE, dashboard
from page_tasks import PAUSED, QUEUED, RUNNING, TasksHome, plain
from selenium.webdriver.common.keys import Keys

from agent.commands.task_control import give_order
from agent.store.configured_ledger import LedgerKind
from agent.wiring.wiring import Wiring

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
TOKEN = "token-of-the-page-0123456789"


@pytest.fixture(scope="module")
def home(chromium, tmp_path_factory):
    extra = f"dashboard: {{token: {TOKEN}}}\n"
    with closing(TasksHome(tmp_path_factory.mktemp("home"), plain, extra)) as made:
        yield made


@pytest.fixture(scope="module")
def site(home):
    with dashboard(home.settings) as address:
        yield address


@pytest.fixture
def opened(chromium, site):
    """Opens an address of the page as a person who is logged in, in a wide window."""

    def lead(path, size=WIDE, scheme="light"):
        chromium.show(size, scheme)
        chromium.open(site + path)
        if chromium.driver.current_url == f"{site}/login":
            log_in(chromium, TOKEN)
            chromium.open(site + path)
        assert chromium.driver.current_url == site + path

    chromium.watch(site)
    return lead


def log_in(chromium, token):
    field = chromium.one("#token")
    field.send_keys(token, Keys.ENTER)
    chromium.until_gone(field)


def test_other_people_see_the_form_and_the_token_opens_the_page(chromium, site):
    chromium.driver.delete_all_cookies()
    chromium.open(f"{site}/tasks/{RUNNING}")
    assert chromium.driver.current_url == f"{site}/login"
    assert "due date" not in chromium.driver.page_source
    assert chromium.axe() == []
    log_in(chromium, "wrong")
    assert "this is not the token" in chromium.text("[role=alert]")
    chromium.show(NARROW, "dark")
    assert (chromium.axe(), chromium.sideways()) == ([], [])
    chromium.show(WIDE, "light")
    log_in(chromium, TOKEN)
    assert chromium.driver.current_url == f"{site}/tasks"
    assert chromium.run("return document.cookie") == "", "scripts do not see the cookies"
    assert chromium.axe() == []
    button = chromium.one("header form button")
    button.click()
    chromium.until_gone(button)
    chromium.open(f"{site}/tasks")
    assert chromium.driver.current_url == f"{site}/login"


def test_the_pictures_of_the_documentation_can_be_made(chromium, opened, tmp_path):
    folder = PICTURES if os.environ.get("MAKIMONO_PICTURES") else tmp_path
    folder.mkdir(exist_ok=True)
    for name, path, size, scheme in (
        ("tasks", "/tasks", (1100, 700), "light"),
        ("task", f"/tasks/{RUNNING}", (1100, 900), "light"),
        ("phone", "/tasks", NARROW, "dark"),
    ):
        opened(path, size, scheme)
        chromium.until(lambda: chromium.text("#live") == "live")
        picture = folder / f"{name}.png"
        chromium.picture(picture)
        assert 10_000 < picture.stat().st_size <= 150_000, name


FOLLOWED = """
window.controls = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter(one => one.type !== 'hidden' && one.checkVisibility());
window.reached = [];
document.addEventListener('keyup', () => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const is_shown = box.width > 0 && box.left >= 0 && box.top >= 0 && box.bottom <= innerHeight;
  reached.push([controls.indexOf(one), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 && is_shown]);
});
return controls.map(one => one.outerHTML);
"""
"""Notes after each key which control has the focus, and whether a person sees that."""


@pytest.mark.parametrize("path", ["/tasks", f"/tasks/{RUNNING}/change", "/memory"])
def test_tab_reaches_each_control_in_the_order_of_the_page_with_a_visible_focus(chromium, opened, path):
    opened(path)
    controls = chromium.run(FOLLOWED)
    assert len(controls) > 10
    chromium.press(*[Keys.TAB] * len(controls))
    reached = chromium.run("return reached")
    assert [place for place, _ in reached] == [*range(len(controls))], controls
    assert [control for control, (_, is_visible) in zip(controls, reached, strict=True) if not is_visible] == []


def test_the_first_control_leads_past_the_navigation(chromium, opened):
    opened("/health")
    chromium.press(Keys.TAB)
    assert chromium.run("return document.activeElement.textContent") == "To the content"
    chromium.press(Keys.ENTER)
    assert chromium.run("return document.activeElement.id") == "main"
    chromium.press(Keys.TAB)
    assert chromium.run("return document.activeElement.closest('main') !== null")


def test_the_list_is_filtered_and_a_call_is_opened_without_a_mouse(chromium, opened, site):
    opened("/tasks")
    field = chromium.one("#text")
    chromium.run("arguments[0].focus()", field)
    chromium.press("vat NUMBERS", Keys.ENTER)
    chromium.until_gone(field)
    assert [one.text for one in chromium.all("table.tasks th a")][-1].startswith("Which of the two VAT numbers")
    assert "1 task, page 1" in chromium.text("caption")
    opened("/tasks")
    chosen = chromium.one("#repository")
    chromium.run("arguments[0].focus()", chosen)
    chromium.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.TAB, Keys.ENTER)
    chromium.until_gone(chosen)
    assert "repository=example%2F" in chromium.driver.current_url
    assert chromium.text("caption").startswith(("1 task", "5 tasks"))
    opened(f"/tasks/{RUNNING}")
    call = chromium.one("details.call")
    assert call.get_attribute("open") is None
    chromium.run("arguments[0].querySelector('summary').focus()", call)
    chromium.press(Keys.ENTER)
    assert "0 of 4 done" in call.text
    chromium.press(Keys.ENTER)
    assert call.get_attribute("open") is None


def test_changes_appear_without_a_reload_and_what_a_person_opened_stays_open(chromium, opened, home):
    opened(f"/tasks/{RUNNING}")
    chromium.until(lambda: chromium.text("#live") == "live")
    chromium.run("window.same = 1")
    chromium.one("details.call summary").send_keys(Keys.ENTER)
    home.running.get_message_store().add_message("assistant", "The rule is described now.")
    home.running.heartbeat()
    chromium.until(lambda: "The rule is described now." in chromium.text("#shown"))
    assert chromium.one("details.call").get_attribute("open") is not None
    assert chromium.run("return document.activeElement.tagName") == "SUMMARY"
    home.ledger.request(RUNNING, "pause")
    chromium.until(lambda: "pause requested" in chromium.text("#facts"))
    home.ledger.request(RUNNING, "resume")
    chromium.until(lambda: "pause requested" not in chromium.text("#facts"))
    assert chromium.run("return window.same") == 1

    opened("/tasks")
    chromium.until(lambda: chromium.text("#live") == "live")
    chromium.run("window.same = 1")
    home.set(QUEUED, title="Show totals in two currencies")
    chromium.until(lambda: "two currencies" in chromium.text(f"#task-{QUEUED}"))
    assert chromium.run("return window.same") == 1


def test_what_has_changed_before_the_stream_of_events_is_open_is_shown_when_it_opens(chromium, opened, home):
    chromium.order("Network.enable")
    chromium.order("Network.setBlockedURLs", urls=["*/static/page.js"])
    opened(f"/tasks/{PAUSED}")
    chromium.order("Network.setBlockedURLs", urls=[])
    home.set(PAUSED, branch="makimono/28-vat")
    chromium.run(
        "document.head.append(Object.assign(document.createElement('script'), {src: '/static/page.js?again'}))"
    )
    chromium.until(lambda: "makimono/28-vat" in chromium.text("#facts"))


def test_without_scripts_each_page_shows_everything(chromium, opened, home):
    opened("/tasks")
    expected = {
        "/tasks": "Reject invoices without a due date",
        "/health": "ready",
        "/memory": "Rounding",
        f"/memory/{home.record}": "We round half up.",
        f"/tasks/{RUNNING}": "update_plan",
        f"/tasks/{RUNNING}/plan": "Refuse the invoice",
        f"/tasks/{RUNNING}/change": "nets[line.rate]",
        f"/tasks/{RUNNING}/compactions/1": "A test fails; the rule is missing.",
        f"/tasks/{RUNNING}/requests": "HTTP 503",
        f"/tasks/{RUNNING}/memory": "mem-7f3a",
        f"/tasks/{RUNNING}/deliberations": "Name the rule in the docs.",
        f"/tasks/{RUNNING}/effects": "progress",
        f"/tasks/{RUNNING}/log": "request_repeated",
    }
    chromium.set_scripts(False)
    try:
        for path, text in expected.items():
            opened(path)
            assert text in chromium.text(), path
    finally:
        chromium.set_scripts(True)


# --- large lists and long tasks --------------------------------------------------------------------------------------

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
def large_home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("large"))
    made.task(OPEN, 1, title="A long task").close()
    with closing(LedgerKind.from_settings(made.settings).open()) as ledger:
        ledger.db.execute(ROWS, count=TASKS)
    messages = made.settings.base_dir / "running" / OPEN / "messages.jsonl"
    roles = ("assistant", "user")
    first = messages.read_bytes().count(b"\n") + 1
    with messages.open("a", encoding="utf-8") as file:
        file.writelines(LINE % (n, roles[n % 2], n) for n in range(first, MESSAGES + 1))
    return made


@pytest.fixture(scope="module")
def large_site(large_home):
    with dashboard(large_home.settings) as address:
        yield address


def follow(chromium, selector):
    link = chromium.one(selector)
    link.click()
    chromium.until_gone(link)


def test_among_ten_thousand_tasks_pages_and_the_search_lead_to_each(chromium, large_site):
    chromium.watch(large_site)
    chromium.open(f"{large_site}/tasks?status=completed&sort=title&order=asc")
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
    assert chromium.watch(large_site) == ([], [])


def test_a_task_of_two_hundred_thousand_messages_is_read_from_both_ends(chromium, large_site):
    chromium.open(f"{large_site}/tasks/{OPEN}")
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
    chromium.open(f"{large_site}/tasks/{OPEN}/messages/123456")
    assert "Message 123456." in chromium.text("#shown")
    assert chromium.watch(large_site) == ([], [])


# --- orders ------------------------------------------------------------------------------------------------------


def click(chromium, name):
    button = next(one for one in chromium.all("#actions button") if one.text == name)
    button.click()
    chromium.until_gone(button)


SAME = ("status", "requested", "outcome", "error_code", "error_message", "not_before", "attempt", "user", "title")


def test_a_click_does_what_the_order_of_the_command_line_does(chromium, opened, home, site):
    clicked, ordered = home.local(101), home.local(102)
    wiring = Wiring(home.settings)
    try:
        for word in ("pause", "resume", "stop"):
            opened(f"/tasks/{clicked}")
            click(chromium, word.capitalize())
            assert chromium.driver.current_url == f"{site}/tasks/{clicked}"
            give_order(wiring, ordered, word)
            ours, theirs = home.row(clicked), home.row(ordered)
            assert {name: getattr(ours, name) for name in SAME} == {name: getattr(theirs, name) for name in SAME}
            assert ours.requested_by == "dashboard.token from 127.0.0.1"
            assert str(ours.status) in chromium.text("#facts")
    finally:
        wiring.close()
    assert [one.text for one in chromium.all("#actions button")] == ["Retry"]
    click(chromium, "Retry")
    made = chromium.driver.current_url.removeprefix(f"{site}/tasks/")
    assert (home.row(made).status, home.row(made).parent_uuid) == ("queued", clicked)


def test_a_form_of_another_site_gives_no_order(chromium, opened, home, site, tmp_path):
    uuid = home.local(103)
    send = (
        "const done = arguments[2], body = new URLSearchParams(arguments[1]);"
        "fetch(arguments[0], {method: 'POST', body}).then(one => done(one.status), error => done(String(error)))"
    )
    opened(f"/tasks/{uuid}")
    address = f"{site}/tasks/{uuid}/stop"
    token = chromium.one("#actions [name=form_token]").get_attribute("value")
    post = chromium.driver.execute_async_script
    assert post(send, address, {}) == 403
    assert post(send, address, {"form_token": "0" * 64}) == 403
    # the same address under another name is another site, and a file has the origin null; both know the token
    form = f'<title>x</title><form method="post" action="{address}"><input name="form_token" value="{token}"><button>x</button></form>'
    other = tmp_path / "other.html"
    other.write_text(form)
    for origin in (f"{site.replace('127.0.0.1', 'localhost')}/login", other.as_uri()):
        chromium.open(origin)
        if origin.startswith("http"):
            policy = chromium.driver.execute_async_script(
                "const done = arguments[1]; addEventListener('securitypolicyviolation', one => done(one.effectiveDirective));"
                "document.body.innerHTML = arguments[0]; document.querySelector('button').click()",
                form,
            )
            assert policy == "form-action", "the page's own policy keeps its forms at home"
            continue
        button = chromium.one("button")
        button.click()
        chromium.until_gone(button)
        assert "another site" in chromium.text("body") or "token is needed" in chromium.text("body")
    assert (home.row(uuid).status, home.row(uuid).requested) == ("queued", None)


# --- the last test: afterwards this address waits for a minute -----------------------------------------------------


def test_many_wrong_tokens_make_an_address_wait(chromium, site):
    chromium.driver.delete_all_cookies()
    chromium.open(f"{site}/login")
    sent = chromium.driver.execute_async_script(
        "const done = arguments[0];"
        "(async () => { const found = [];"
        "  for (let n = 0; n < 12; n++) found.push((await fetch('/login', {method: 'POST', body: 'token=wrong'})).status);"
        "  return found; })().then(done)"
    )
    assert sent.count(403) in (9, 10)  # one was sent by the form
    assert sent[-2:] == [429, 429]
    log_in(chromium, TOKEN)
    assert "wait a minute" in chromium.text("[role=alert]")

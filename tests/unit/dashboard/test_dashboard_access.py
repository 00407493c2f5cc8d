"""Who may open the page: names, origins, the token, sessions, forms and headers."""

import re
from urllib.parse import urlencode

import pytest
from cli_home import DONE, OPEN, Home
from page_home import served

from agent.config import load
from agent.dashboard.access import Access, host_of, refused_to_listen
from agent.dashboard.server import PageServer
from agent.errors import ConfigError, HostError
from agent.store.configured_ledger import LedgerKind

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("home")).both()
    made.repository()
    issue = "---\ntitle: Two\nlabels: [coding agent done]\nauthor: alice\nstate: open\n---\nPlease.\n"
    (made.folder / "tracker" / "issues" / "2.md").write_text(issue)
    return made


@pytest.fixture(scope="module")
def page(home):
    with served(home.settings) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(home):
    config = home.folder / "guarded.yaml"
    config.write_text(home.config.read_text() + f"dashboard: {{token: {TOKEN}, hosts: [page.example]}}\n")
    with served(load(config, environ={}), has_actions=True) as found:
        yield found


def row(home, uuid):
    ledger = LedgerKind.from_settings(home.settings).open()
    try:
        return ledger.get(uuid)
    finally:
        ledger.close()


@pytest.mark.parametrize("path", ["/tasks", f"/tasks/{DONE}", "/memory", "/health", "/nothing", "/static/style.css"])
def test_every_answer_has_the_headers_that_keep_scripts_frames_and_referrers_out(page, path):
    headers = page.get(path).headers
    policy = dict(one.strip().partition(" ")[::2] for one in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/tasks", f"/tasks/{DONE}", "/health"])
def test_no_page_has_a_script_or_a_style_in_its_text(page, path):
    text = page.get(path).text
    assert re.findall(r"<script[^>]*>", text) == ['<script src="/static/page.js" defer>']
    assert "<style" not in text
    assert not re.search(r"\s(?:style|on\w+)=", text)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8017", "127.0.0.1.evil.example", "", "a@127.0.0.1", "127.0.0.1/x", "[::1"]
)
def test_a_request_under_another_name_is_refused(page, host):
    assert page.get("/tasks", Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost:8017", "127.0.0.1", "[::1]:9", "LOCALHOST"])
def test_names_of_this_machine_are_served(page, host):
    assert page.get("/tasks", Host=host).status == 200


def test_a_request_of_another_site_is_refused(page):
    assert page.get("/tasks", Origin="https://evil.example").status == 403
    assert page.get("/tasks", Origin="null").status == 403
    assert page.get("/tasks", Origin=f"http://{page.name}").status == 200


def test_where_the_page_listens_decides_which_names_it_has():
    wide = Access("0.0.0.0", "t" * 16, ("agent.example.org",))
    assert wide.is_known_host("192.0.2.7:8017")  # nobody else owns an address in digits
    assert wide.is_known_host("agent.example.org")
    assert not wide.is_known_host("other.example.org")
    here = Access("127.0.0.1")
    assert not here.is_known_host("192.0.2.7")
    assert host_of("a.example:x") == ""


def test_other_machines_need_a_token():
    assert "dashboard.token" in refused_to_listen("0.0.0.0", "")
    assert refused_to_listen("0.0.0.0", "t" * 16) == refused_to_listen("::1", "") == ""


def test_a_server_without_a_token_does_not_listen_for_others(home):
    with pytest.raises(ConfigError, match=r"dashboard\.token"):
        PageServer(home.settings, "0.0.0.0", 0)


def test_a_port_that_is_taken_is_an_error_with_the_port(home, page):
    with pytest.raises(HostError, match=rf"{page.port}: .*; give another one with --port, or --port 0"):
        PageServer(home.settings, "127.0.0.1", page.port)


# --- the token -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/tasks", f"/tasks/{DONE}", "/memory", "/health"])
def test_without_the_token_nothing_is_shown(guarded, path):
    answer = guarded.get(path)
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    assert guarded.get(path, Accept="application/json").status == 401
    assert guarded.get("/events").status == 401


def test_the_header_opens_the_page(guarded):
    assert guarded.json("/tasks", Authorization=f"Bearer {TOKEN}")["total"] == 2
    assert guarded.get("/tasks", Authorization=f"Basic {TOKEN}").status == 303


def test_a_login_gives_a_cookie_that_only_this_site_sends_and_no_script_sees(guarded):
    answer = guarded.post("/login", urlencode({"token": TOKEN}))
    assert (answer.status, answer.headers["location"]) == (303, "/tasks")
    cookie = next(one for one in answer.cookies if one.startswith("makimono_session="))
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie
    session = cookie.partition(";")[0]
    assert guarded.get("/tasks", Cookie=session).status == 200
    assert guarded.post("/logout", Cookie=session).status == 303
    assert guarded.get("/tasks", Cookie=session).status == 303


def test_behind_tls_the_cookie_is_for_tls(guarded):
    answer = guarded.post("/login", urlencode({"token": TOKEN}), X_Forwarded_Proto="https")
    assert all("Secure" in one for one in answer.cookies)


def test_a_login_from_another_site_is_refused(guarded):
    assert guarded.post("/login", urlencode({"token": TOKEN}), Origin="https://evil.example").status == 403


def test_wrong_tokens_are_counted_and_then_refused(home):
    config = home.folder / "counted.yaml"
    config.write_text(home.config.read_text() + f"dashboard: {{token: {TOKEN}}}\n")
    with served(load(config, environ={})) as counted:
        good = counted.post("/login", urlencode({"token": TOKEN}))
        session = good.cookies[0].partition(";")[0]
        wrong = [counted.post("/login", urlencode({"token": "x" * 20})).status for _ in range(6)]
        wrong += [
            counted.get("/tasks", Authorization="Bearer wrong", Accept="application/json").status for _ in range(6)
        ]
        assert wrong[:10] == [403] * 6 + [401] * 4
        assert wrong[10:] == [429, 429]
        assert counted.post("/login", urlencode({"token": TOKEN})).status == 429
        assert counted.get("/tasks", Cookie=session).status == 200  # who is logged in stays so


def test_a_long_form_is_not_read(guarded):
    assert guarded.post("/login", "token=" + "x" * 100_000).status in (403, 429)


def test_the_token_is_shown_nowhere(guarded):
    for path in ("/tasks", "/health", f"/tasks/{DONE}/log"):
        assert TOKEN not in guarded.get(path, Authorization=f"Bearer {TOKEN}").text


def test_a_short_token_and_peers_without_one_are_refused(home):
    for text in (
        "{token: short}",
        "{peers: {b: 'https://b.example'}}",
        f"{{token: {TOKEN}, peers: {{b: 'http://b.example'}}}}",
    ):
        config = home.folder / "bad.yaml"
        config.write_text(home.config.read_text() + f"dashboard: {text}\n")
        with pytest.raises(ConfigError, match="dashboard"):
            load(config, environ={})


# --- orders --------------------------------------------------------------------------------------------------


def test_without_actions_no_order_is_taken(page, home):
    assert "<button" not in page.get(f"/tasks/{OPEN}").text
    assert page.post(f"/tasks/{OPEN}/stop").status == 403
    assert page.get(f"/tasks/{OPEN}/stop").status == 405
    assert row(home, OPEN).requested is None


def test_an_order_needs_the_form_of_a_page_and_is_written_to_the_row_with_who_gave_it(guarded, home):
    login = guarded.post("/login", urlencode({"token": TOKEN}))
    session = next(one for one in login.cookies if one.startswith("makimono_session=")).partition(";")[0]
    shown = guarded.get(f"/tasks/{OPEN}", Cookie=session)
    form_cookie = next(one for one in shown.cookies if one.startswith("makimono_form=")).partition(";")[0]
    token = re.search(r'name="form_token" value="(\w+)"', shown.text)[1]
    cookies = f"{session}; {form_cookie}"
    pause = f"/tasks/{OPEN}/pause"
    body = urlencode({"form_token": token})
    assert guarded.post(pause, urlencode({"form_token": "0" * 64}), Cookie=cookies).status == 403
    assert guarded.post(pause, "form_token=%C3%A9", Cookie=cookies).status == 403
    assert guarded.post(pause, body, Cookie=session).status == 403  # another browser
    assert guarded.post(pause, body, Cookie=cookies, Origin=None).status == 403
    assert guarded.post(pause, body, Cookie=cookies, Origin="https://evil.example").status == 403
    assert guarded.post(pause, body, Cookie=form_cookie).status == 401
    assert guarded.get(pause, Cookie=cookies).status == 405
    assert row(home, OPEN).requested is None

    answer = guarded.post(pause, body, Cookie=cookies)
    assert (answer.status, answer.headers["location"]) == (303, f"/tasks/{OPEN}")
    assert row(home, OPEN).requested == "pause"
    assert row(home, OPEN).requested_by.startswith("dashboard.token from 127.0.0.1")
    assert "pause requested" in guarded.get(f"/tasks/{OPEN}", Cookie=cookies).text

    bearer = f"Bearer {TOKEN}"
    assert guarded.post(f"/tasks/{OPEN}/resume", Authorization=bearer, Origin=None, Accept="application/json").json == {
        "uuid": OPEN,
        "status": "running",
    }
    assert row(home, OPEN).requested is None
    refused = guarded.post(f"/tasks/{OPEN}/retry", Authorization=bearer, Origin=None)
    assert refused.status == 409
    assert "only what has ended can be tried again" in refused.text
    refused = guarded.post(f"/tasks/{DONE}/stop", Authorization=bearer, Origin=None)
    assert refused.status == 409
    assert "already" in refused.text


def test_a_retry_makes_a_new_task_and_leads_to_it(guarded, home):
    answer = guarded.post(f"/tasks/{DONE}/retry", Authorization=f"Bearer {TOKEN}", Origin=None)
    assert answer.status == 303, answer.text
    made = answer.headers["location"].removeprefix("/tasks/")
    assert row(home, made).parent_uuid == DONE

"""What does not fit is told on the issue, nothing of it is sent, and the task fails with a code of its own."""

import re

import pytest
from flow_home import FlowHome
from llm_servers import Reply, Script

TOO_LONG = {
    "error": {
        "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
}


def run(folder, window, *issues, config=""):
    """A whole run on a server that takes nothing."""
    server = Script(Reply(TOO_LONG, 400))
    home = FlowHome(folder, server=server)
    text = home.config.read_text().replace("context_length: 32000", f"context_length: {window}")
    home.config.write_text(text + config)
    for number, (title, body) in enumerate(issues, 1):
        home.issue(number, title, body)
    home.run("run", "--once", code=1)
    return home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    made = run(folder, 12_000, ("A novel", "All of this matters. " * 6000), ("A word", "Please."))
    yield made
    made.close()


def told(home, number):
    [body] = home.said(number)
    row = home.row(number)
    assert row["status"] == "failed"
    assert home.label(number) == "coding agent failed"
    assert not home.pulls()
    return body, row["error_code"]


def test_fr_5_a_task_that_does_not_fit_is_told_with_numbers_and_not_sent(home):
    body, code = told(home, 1)
    assert code == "turn_too_large"
    found = re.search(r"need ([\d,]+) tokens; the model takes ([\d,]+) of input, so ([\d,]+) are too many", body)
    need, limit, over = (int(number.replace(",", "")) for number in found.groups())
    assert need - limit == over > 0
    assert "Nothing was sent" in body
    assert "larger window" in body
    assert home.lines(1, "messages.jsonl")[-1]["role"] == "user", "no answer, so nothing was asked"
    assert all(b"A novel" not in request.body for request in home.server.asked)


def test_a_server_that_says_too_long_whatever_is_sent_is_a_clear_end(home):
    body, code = told(home, 2)
    assert code in ("context_overflow", "turn_too_large")
    assert "too long" in body or "too many" in body
    assert 1 <= len(home.server.asked) <= 3


def test_what_only_an_estimate_says_is_sent_and_the_server_decides(tmp_path):
    """Over the window by estimate, but not by so much that no other count could be true: it is sent once."""
    home = run(tmp_path, 12_000, ("A tale", "All of this matters. " * 3000))
    try:
        _, code = told(home, 1)
        assert code in ("context_overflow", "turn_too_large")
        assert 1 <= len(home.server.asked) <= 3
        assert all(b"All of this matters. All" in request.body for request in home.server.asked)
    finally:
        home.close()


def test_fr_4_a_system_prompt_that_does_not_fit_is_told_and_nothing_is_sent(tmp_path):
    prompt = "assembler: {system_prompt: '" + "Mind the gap. " * 8000 + "'}\n"
    home = run(tmp_path, 12_000, ("A word", "Please."), config=prompt)
    try:
        body, code = told(home, 1)
        assert code == "system_prompt_too_large"
        assert re.search(r"system prompt and the tools alone need [\d,]+ tokens.*so [\d,]+ are too many", body)
        assert home.server.asked == []
    finally:
        home.close()

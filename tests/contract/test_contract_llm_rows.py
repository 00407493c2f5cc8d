"""The rows of docs/wire.md over HTTP, for every client that talks to somebody else's server.

What a status, a wait, a page, a silence and half an answer lead to: how often is asked, what is raised, what is kept.
"""

import json

import pytest
from llm_servers import TOOL, WIRES, Heard, Reply, call, conversations, says, sse

from agent import clock
from agent.errors import (
    AnswerUnreadable,
    ContextOverflow,
    HistoryRefused,
    ModelError,
    ModelStalled,
    ModelUnreachable,
    RequestRefused,
)
from agent.values import Plan, Span

SPOKEN = sorted(WIRES)
PATHS = {
    "openai": "/v1/chat/completions",
    "lmstudio": "/v1/chat/completions",
    "ollama": "/api/chat",
    "anthropic": "/v1/messages",
}


@pytest.fixture(params=SPOKEN)
def wire(request):
    return request.param


@pytest.fixture
def talk(tmp_path):
    """talk(wire, *replies) → (client, store, server) with a user's message in the store."""
    with conversations(tmp_path, ("user", "Fix it.")) as start:
        yield start


def nothing_was_kept(store):
    assert store.count_messages() == 1
    assert not (store.context_dir / "request.json").exists()


def error(message="no", kind="", code=None):
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# --- statuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 425, 499, 500, 502, 503, 504, 529])
def test_what_may_pass_is_asked_again_with_the_same_bytes_until_it_is_well(talk, wire, status):
    heard = Heard()
    ill = Reply(error("come back later"), status)
    client, store, server = talk(wire, ill, ill, says(wire, "well"), events=heard)
    with clock.use(clock.FakeClock()) as fake:
        assert client.get_response() == ("well", [])
    assert [(wait["code"], str(status) in wait["why"]) for wait in heard.named("model_wait")] == [
        ("model_unreachable", True)
    ] * 2
    assert 0.75 <= fake.slept[0] < fake.slept[1] <= 2.0
    bodies = [request.body for request in server.asked]
    assert len(bodies) == 3
    assert len(set(bodies)) == 1
    assert store.count_messages() == 2


@pytest.mark.parametrize("status", [408, 409])
def test_what_does_not_pass_is_given_up_after_some_tries(talk, wire, status):
    client, store, server = talk(wire, Reply(b"", status))
    with clock.use(clock.FakeClock()), pytest.raises(ModelUnreachable, match=str(status)):
        client.get_response()
    assert 3 <= len(server.asked) <= 10
    nothing_was_kept(store)


UNREADABLE = [
    (400, {"error": {"message": "x", "code": "tool_use_failed", "failed_generation": "{"}}),  # Groq, pydantic/pydantic-ai#2759
    (500, {"error": "error parsing tool call: raw='{', err=unexpected end of JSON input"}),  # ollama/ollama#12064
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), UNREADABLE)
def test_a_call_that_its_server_cannot_read_is_asked_for_again_a_few_times(talk, wire, status, body):
    client, _, server = talk(wire, Reply(body, status), says(wire, "well"))
    with clock.use(clock.FakeClock()):
        assert client.get_response() == ("well", [])
    assert len(server.asked) == 2
    client, _, server = talk(wire, Reply(body, status))
    with clock.use(clock.FakeClock()), pytest.raises(ModelError) as stopped:
        client.get_response()
    assert (stopped.value.code, len(server.asked)) == ("call_unreadable", 3)


STOPS = [
    (400, error("temperature must be below 2", "invalid_request_error"), "request_refused"),
    (401, error("Incorrect API key provided", code="invalid_api_key"), "access_refused"),
    (402, error("Insufficient credits"), "quota_exhausted"),
    (403, error("not in your country"), "access_refused"),
    (404, error("no such model", code="model_not_found"), "model_not_found"),
    (413, error("Request exceeds the maximum size", "request_too_large"), "context_overflow"),
    (422, error("Unprocessable"), "request_refused"),
    (429, error("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), "quota_exhausted"),
    (
        429,
        error("Request too large: Limit 30000, Requested 36278", "tokens", "rate_limit_exceeded"),
        "request_too_large",
    ),
    (429, error("slow down; try again in 10m", "requests", "rate_limit_exceeded"), "rate_limited"),
    (429, error("Limit on requests per day (RPD): 200", "requests", "rate_limit_exceeded"), "rate_limited"),
    (400, error("maximum context length is 100 tokens", code="context_length_exceeded"), "context_overflow"),
    (500, error("Error rendering prompt with jinja template: No user query found in messages."), "history_refused"),
    (400, error("An assistant message with 'tool_calls' must be followed by tool messages"), "history_refused"),
]


@pytest.mark.parametrize(("status", "body", "code"), STOPS)
def test_what_asking_again_cannot_help_is_asked_once_and_raised_by_its_kind(talk, wire, status, body, code):
    client, store, server = talk(wire, Reply(body, status))
    with clock.use(clock.FakeClock()) as fake, pytest.raises(ModelError) as stopped:
        client.get_response()
    assert stopped.value.code == code
    assert stopped.value.status == status
    assert fake.slept == []
    assert len(server.asked) == 1
    nothing_was_kept(store)


# --- waits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "headers", "text", "seconds"),
    [
        (429, {"Retry-After": "12"}, "", 12.0),
        (429, {"Retry-After": "Sat, 31 Jan 2026 09:15:30 GMT"}, "", 30.0),
        (429, {"retry-after-ms": "1500"}, "", 1.5),
        (429, {"Retry-After": "1"}, "Please try again in 11.05s.", 11.05),
        (429, {}, "Please try again in 200ms.", 0.2),
        (503, {"Retry-After": "4"}, "", 4.0),
    ],
)
def test_a_wait_that_is_asked_for_is_kept_and_not_much_more(talk, wire, status, headers, text, seconds):
    client, _, server = talk(wire, Reply(error(f"slow down. {text}"), status, headers), says(wire, "well"))
    with clock.use(clock.FakeClock()) as fake:
        assert client.get_response()[0] == "well"
    assert seconds <= sum(fake.slept) <= seconds * 1.05 + 0.01
    assert len(server.asked) == 2


# --- answers that are none --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [
        Reply(
            b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>", headers={"Content-Type": "text/html"}
        ),
        Reply(b"<html>\n<body>\nIt works!\n</body>\n</html>\n"),
        Reply({"error": "Unexpected endpoint or method. (POST /x). Returning 200 anyway"}),
        Reply({"hello": "world"}),
    ],
    ids=["page", "bare page", "wrong path", "other JSON"],
)
def test_200_with_something_else_names_the_address_and_is_asked_once(talk, wire, page):
    client, store, server = talk(wire, page)
    with pytest.raises(AnswerUnreadable, match="base_url"):
        client.get_response()
    assert len(server.asked) == 1
    nothing_was_kept(store)


@pytest.mark.parametrize("begun", [True, False], ids=["in the stream", "before it"])
def test_silence_is_given_up_after_idle_timeout_three_times(talk, wire, begun):
    make, kind = WIRES[wire]
    pieces = make("half an answer", (), done=False)[:2]
    silent = (
        Reply(pieces, headers={"Content-Type": kind}, hold=60.0) if begun else says(wire, "never read", before=60.0)
    )
    client, store, server = talk(wire, silent, idle_timeout=0.15)
    with clock.use(clock.FakeClock()), pytest.raises(ModelStalled, match=r"0\.15 s \(idle_timeout\)"):
        client.get_response()
    assert len(server.asked) == 3
    nothing_was_kept(store)


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "polite"])
def test_a_whole_call_in_half_an_answer_is_not_acted_on(talk, wire, cut):
    make, kind = WIRES[wire]
    calls = (call("read_file", {"path": "a.py"}, "call_1"),)
    pieces = make("", calls, done=False)
    if wire in ("openai", "lmstudio"):
        pieces = [piece for piece in pieces if b'"finish_reason": "tool_calls"' not in piece]
    half = Reply(pieces, headers={"Content-Type": kind}, cut=cut)
    client, store, server = talk(wire, half, tools=[TOOL])
    with clock.use(clock.FakeClock()), pytest.raises(ModelStalled):
        client.get_response()
    assert len(server.asked) == 3
    assert client.last is None
    nothing_was_kept(store)


@pytest.mark.parametrize("named", [True, False], ids=["event", "no event"])
@pytest.mark.parametrize("bare", [True, False], ids=["text", "object"])
def test_an_error_in_the_midst_of_a_stream_is_of_its_kind_whatever_its_shape(talk, wire, bare, named):
    make, kind = WIRES[wire]
    words = "prompt is too long: 9173 tokens > 4096 maximum"
    body = {"error": words if bare else {"message": words, "type": "invalid_request_error"}}
    said = json.dumps(body).encode() + b"\n" if wire == "ollama" else sse(body, "error" if named else None)
    broken = Reply([*make("half an answer", (), done=False)[:2], said], headers={"Content-Type": kind})
    client, store, server = talk(wire, broken)
    with pytest.raises(ContextOverflow) as overflow:
        client.get_response()
    assert (overflow.value.limit, overflow.value.requested) == (4096, 9173)
    assert len(server.asked) == 1
    nothing_was_kept(store)


def test_a_history_that_a_server_refuses_is_said_and_left_as_it_is(talk, wire):
    client, store, server = talk(wire, Reply(error("messages[7]: Duplicate value for 'tool_call_id'"), 400))
    before = store.messages_path.read_bytes()
    with pytest.raises(HistoryRefused):
        client.get_response()
    assert store.messages_path.read_bytes() == before
    assert len(server.asked) == 1


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http://", ""], ids=["scheme", "bare"])
@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_an_address_is_taken_with_and_without_scheme_version_and_slash(talk, wire, scheme, path):
    def url(server):
        return scheme + server.url.removeprefix("http://") + path

    client, _, server = talk(wire, says(wire, "hello"), url=url)
    assert client.get_response()[0] == "hello"
    assert [request.path for request in server.asked] == [PATHS[wire]]


# --- the length of an answer ------------------------------------------------------------------------------------


def limit_of(request):
    body = request.json
    limits = [body.get(key) for key in ("max_tokens", "max_completion_tokens")]
    return next((one for one in [*limits, body.get("options", {}).get("num_predict")] if one), None)


def test_case_21_a_summary_asks_for_no_longer_an_answer_than_has_room(talk, wire, tmp_path):
    """`max_output_tokens` may be more than the whole window; beside a prompt a quarter of it is kept for the answer."""
    client, _, server = talk(wire, says(wire, "in short"), max_output_tokens=339_835, context_length=8192)
    path = tmp_path / "summary_request.txt"
    path.write_text("Summarise this")
    assert client.get_summary(path) == "in short"
    assert limit_of(server.asked[-1]) == 2048
    client.get_response()
    assert limit_of(server.asked[-1]) == 2048


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 339835. This model supports at most 1000 completion tokens, whereas you provided 339835.",
        "max_tokens: 2048 > 1000, which is the maximum allowed number of output tokens for claude-3-opus-20240229",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 1000]",
        "`max_tokens` must be less than or equal to `1000`, the maximum value for `max_tokens` of this model",
    ],
)
def test_a_limit_over_what_the_model_writes_is_lowered_once_and_remembered(talk, wire, said, tmp_path):
    refusal = Reply({"error": {"message": said, "type": "invalid_request_error"}}, 400)
    client, store, server = talk(wire, refusal, says(wire, "hello"), max_output_tokens=8000, context_length=8192)
    assert client.get_response()[0] == "hello"
    path = tmp_path / "summary_request.txt"
    path.write_text("Summarise this")
    client.get_summary(path)
    assert [limit_of(request) for request in server.asked] == [2048, 1000, 1000]
    server.replies = [refusal]
    store.add_message("user", "And now?")
    with pytest.raises(RequestRefused):
        client.get_response()
    assert len(server.asked) == 4


def test_an_answer_with_just_as_many_tokens_as_were_allowed_was_cut_whatever_the_reason_says(talk, wire, tmp_path):
    """Routers make "tool_calls" or "stop" of "length"; arguments that were cut may still parse."""
    calls = (call("read_file", {"path": "a.py"}, "call_1"),)
    client, store, _ = talk(
        wire,
        says(wire, "", calls, usage=(100, 64)),
        says(wire, "half of a summary", usage=(100, 64)),
        says(wire, "", calls, usage=(100, 63)),
        tools=[TOOL],
        max_output_tokens=64,
    )
    client.get_response()
    assert client.last.finish_reason == "length"
    last = json.loads(store.messages_path.read_bytes().splitlines()[-1])
    assert last["finish_reason"] == "length"
    path = tmp_path / "summary_request.txt"
    path.write_text("Summarise this")
    with pytest.raises(AnswerUnreadable, match="cut"):
        client.get_summary(path)
    store.add_message("tool", "not run", tool_name="read_file")
    client.get_response()
    assert client.last.finish_reason == ("stop" if wire == "ollama" else "tool_calls")


def test_an_answer_is_limited_where_nothing_is_configured_and_a_learnt_window_keeps_it_short(talk, wire):
    """A model that finds no end would write until the window is full; what an error taught is in the plan's limit."""
    client, store, server = talk(wire, says(wire, "hello"), context_length=200_000)
    span = Span(store.get_current_context_file())
    client.get_response(Plan((span,), limit=140_000))
    store.add_message("user", "And now?")
    client.get_response(Plan((span,), limit=4_200))
    assert [limit_of(request) for request in server.asked] == [8192, 1400]

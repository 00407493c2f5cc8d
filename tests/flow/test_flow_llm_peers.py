"""Our clients against programs of other people, and other people's clients against our replay server.

aimock (npm) speaks OpenAI, Anthropic and Ollama from fixtures; llmock (PyPI) breaks requests and judges how the client
coped; `openai` and `ollama` are the vendors' own clients.  What is missing here skips with a reason, with CI=1 it fails.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from llm_servers import TOOL, Heard, client_for
from ports import free_port

from agent.errors import ContextOverflow, ModelError, QuotaExhausted
from agent.llm.openai import PLAINER
from agent.llm.replay import ReplayServer

PEERS = Path(__file__).parents[1] / "peers"
AIMOCK = PEERS / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

FIXTURES = [
    {"match": {"userMessage": "read both", "turnIndex": 0}, "response": {"toolCalls": [{"name": "read_file", "arguments": {"path": "a.py"}}, {"name": "read_file", "arguments": {"path": "b.py"}}]}},
    {"match": {"userMessage": "read both", "turnIndex": 1}, "response": {"content": "Both are read. 両方読みました。"}},
    {"match": {"userMessage": "too long"}, "response": {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"}, "status": 400}},
    {"match": {"userMessage": "no money"}, "response": {"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}, "status": 429}},
    {"match": {"userMessage": "short summary"}, "response": {"content": "In short."}},
    {"match": {"userMessage": "cut off"}, "response": {"content": "x" * 400}, "truncateAfterChunks": 3},
    {"match": {"userMessage": "hello"}, "response": {"content": "Hi there!"}},
]  # fmt: skip


def missing(what):
    if os.environ.get("CI") == "1":
        pytest.fail(f"{what}; scripts/test-peers installs it")
    pytest.skip(f"{what}; scripts/test-peers installs it")


def get(url, *, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


def await_port(process, port, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"{process.args[0]} did not start: {log.read_text()[-2000:]}")


def running(argv, port, folder):
    log = folder / "peer.log"
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        await_port(process, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def aimock(tmp_path_factory):
    node = shutil.which("node") or str(Path(sys.executable).parent / "node")
    if not Path(node).exists():
        missing("node is not installed")
    if not AIMOCK.exists():
        missing("aimock is not installed in tests/peers")
    folder = tmp_path_factory.mktemp("aimock")
    fixtures = folder / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    port = free_port()
    yield from running(
        [node, str(AIMOCK), "-p", str(port), "-f", str(fixtures), "--log-level", "warn", "-c", "7"], port, folder
    )


@pytest.fixture(scope="module")
def llmock(tmp_path_factory):
    binary = Path(sys.executable).parent / "llmock"
    if not binary.exists():
        missing("llmock is not installed")
    folder = tmp_path_factory.mktemp("llmock")
    port = free_port()
    yield from running(
        [str(binary), "serve", "--port", str(port), "--context-window", "2000", "--log-level", "warning"], port, folder
    )


@pytest.fixture
def clients(tmp_path):
    made = []

    def start(wire, url, **more):
        client, store = client_for(wire, url, tmp_path, tools=[TOOL], **more)
        made.append(client)
        return client, store

    yield start
    for client in made:
        client.close()


WIRES = ["openai", "lmstudio", "ollama", "anthropic"]
LLMOCK_PATHS = {"openai": "", "anthropic": "/anthropic"}


# --- aimock ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_a_parallel_tool_loop_works_against_aimock(aimock, clients, wire):
    client, store = clients(wire, aimock)
    client.send_system_prompt("You are careful.")
    client.send_user_message("Please read both files")
    _, calls = client.get_response()
    assert [call["arguments"] for call in calls] == [{"path": "a.py"}, {"path": "b.py"}]
    assert len({call["id"] for call in calls}) == 2
    for call in calls:
        store.add_message("tool", "text of " + call["arguments"]["path"], tool_call_id=call["id"])
    assert client.get_response() == ("Both are read. 両方読みました。", [])
    assert [record["role"] for record in store.records()] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize("wire", WIRES)
def test_an_overflow_of_aimock_is_an_overflow(aimock, clients, wire):
    client, store = clients(wire, aimock)
    client.send_user_message("this is too long")
    with pytest.raises(ContextOverflow) as overflow:
        client.get_response()
    assert (overflow.value.limit, overflow.value.requested) == (8192, 9000)
    assert store.count_messages() == 1


@pytest.mark.parametrize("wire", WIRES)
def test_no_quota_at_aimock_is_asked_for_once(aimock, clients, wire):
    get(f"{aimock}/__aimock/reset/journal", body={})
    client, _ = clients(wire, aimock)
    client.send_user_message("there is no money left")
    with pytest.raises(QuotaExhausted):
        client.get_response()
    asked = [
        entry
        for entry in get(f"{aimock}/__aimock/journal")
        if entry["method"] == "POST" and entry["path"] != "/api/show"
    ]
    assert len(asked) == 1


@pytest.mark.parametrize("wire", WIRES)
def test_a_summary_of_aimock_comes_from_outside_the_conversation(aimock, clients, wire, tmp_path):
    client, store = clients(wire, aimock)
    path = tmp_path / "summary_request.txt"
    path.write_text("Please make a short summary of\n[USER]: 'x'")
    assert client.get_summary(path) == "In short."
    assert store.count_messages() == 0


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_aimock_cuts_leaves_nothing(aimock, clients, wire):
    from agent import clock

    client, store = clients(wire, aimock)
    client.send_user_message("you are cut off")
    with clock.use(clock.FakeClock()), pytest.raises(ModelError) as failed:
        client.get_response()
    assert failed.value.code in ("model_stalled", "model_unreachable")
    assert store.count_messages() == 1


# --- llmock: a judge of the client ------------------------------------------------------------------------------


def script(url, *behaviors):
    get(f"{url}/_llmock/reset", body={})
    if behaviors:
        get(f"{url}/_llmock/scenario", body={"behaviors": list(behaviors)})


def judged(url):
    """The report of `llmock report --json`; it ends with 1 when the client misbehaved."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "llmock"), "report", "--json", "--url", url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_llmock_finds_no_fault_in_waits_retries_and_broken_streams(llmock, clients, wire):
    script(
        llmock,
        {"type": "fail", "status": 429, "retry_after": 0.4},
        {"type": "fail", "status": 503},
        {"type": "stream_fault", "kind": "disconnect", "after_chunks": 1},
        {"type": "reply", "text": "hello, all is well"},
    )
    heard = Heard()
    client, store = clients(wire, llmock + LLMOCK_PATHS[wire], events=heard)
    client.tools = ()
    client.send_user_message("hi")
    assert client.get_response()[0]
    assert heard.named("model_wait")[0]["code"] == "rate_limited"
    assert len(heard.named("model_wait")) == 3
    assert store.count_messages() == 2
    judged(llmock)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("kind", ["truncate", "malformed"])
def test_llmock_cannot_pass_off_half_an_answer(llmock, clients, wire, kind):
    script(
        llmock,
        {"type": "stream_fault", "kind": kind, "after_chunks": 1},
        {"type": "reply", "text": "first"},
        {"type": "reply", "text": "a whole answer"},
    )
    client, store = clients(wire, llmock + LLMOCK_PATHS[wire])
    client.tools = ()
    client.send_user_message("hi")
    assert client.get_response()[0]
    assert store.count_messages() == 2
    judged(llmock)


@pytest.mark.parametrize("status", [400, 422])
def test_llmock_sees_a_first_request_that_was_refused_without_a_reason_again_only_plainer(llmock, clients, status):
    script(llmock, *({"type": "fail", "status": status} for _ in range(9)))
    client, _ = clients("openai", llmock)
    client.calling.wanted = "native"
    client.send_user_message("hi")
    with pytest.raises(ModelError):
        client.get_response()
    assert len(get(f"{llmock}/_llmock/requests")["requests"]) == 1 + len(PLAINER)
    judged(llmock)


@pytest.mark.parametrize("status", [401, 404])
def test_llmock_sees_no_second_try_of_what_cannot_succeed(llmock, clients, status):
    """The address has two forms, and a 404 tells only of one."""
    script(llmock, {"type": "fail", "status": status}, {"type": "fail", "status": status})
    client, _ = clients("openai", llmock)
    client.calling.wanted = "native"
    client.send_user_message("hi")
    with pytest.raises(ModelError):
        client.get_response()
    paths = [one["path"] for one in get(f"{llmock}/_llmock/requests")["requests"]]
    assert paths == ["/v1/chat/completions", "/chat/completions"][: 2 if status == 404 else 1]
    judged(llmock)


def test_llmock_with_a_small_window_teaches_it(llmock, clients):
    script(llmock)
    client, store = clients("openai", llmock)
    client.send_user_message("word " * 4000)
    with pytest.raises(ContextOverflow) as overflow:
        client.get_response()
    assert overflow.value.limit == 2000
    assert overflow.value.requested > 2000
    assert store.count_messages() == 1


def test_arguments_that_llmock_breaks_are_kept_as_invalid(llmock, clients):
    script(llmock, {"type": "tool_fault", "kind": "malformed_arguments"})
    client, store = clients("openai", llmock)
    client.send_user_message("read a file")
    _, calls = client.get_response()
    assert calls[0]["arguments"] == {}
    assert calls[0]["invalid"]
    store.add_message("tool", "not run", tool_call_id=calls[0]["id"])
    assert client.get_response()[0]


# --- the vendors' own clients on our replay server ---------------------------------------------------------------

RECORDED = [
    {"seq": 1, "role": "user", "content": "u"},
    {"seq": 2, "role": "assistant", "content": "I look.", "finish_reason": "tool_calls", "usage": {"prompt_tokens": 50, "completion_tokens": 9, "cached_tokens": 3}, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": json.dumps({"path": "a.py", "text": "x" * 100})}}]},
    {"seq": 3, "role": "tool", "content": "A", "tool_call_id": "call_1", "tool_name": "read_file"},
    {"seq": 4, "role": "assistant", "content": "It is done, 終わり。" * 10, "finish_reason": "stop", "usage": {"prompt_tokens": 70, "completion_tokens": 5, "cached_tokens": 0}},
]  # fmt: skip


@pytest.fixture
def replay():
    with ReplayServer(RECORDED) as server:
        yield server


@pytest.mark.parametrize("stream", [False, True])
def test_the_official_openai_client_reads_what_the_replay_server_sends(replay, stream):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{replay.url}/v1", api_key="none", max_retries=0) as client:
        first = [{"role": "user", "content": "u"}]
        later = [*first, {"role": "assistant", "content": "I look."}, {"role": "user", "content": "v"}]
        if stream:
            chunks = list(client.chat.completions.create(model="m", messages=first, stream=True))
            pieces = [
                part.function.arguments or ""
                for chunk in chunks
                if chunk.choices
                for part in chunk.choices[0].delta.tool_calls or ()
            ]
            assert json.loads("".join(pieces))["path"] == "a.py"
            assert chunks[-1].usage.prompt_tokens == 50
            text = "".join(
                chunk.choices[0].delta.content or ""
                for chunk in client.chat.completions.create(model="m", messages=later, stream=True)
                if chunk.choices
            )
        else:
            answer = client.chat.completions.create(model="m", messages=first)
            assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments)["path"] == "a.py"
            assert answer.usage.prompt_tokens_details.cached_tokens == 3
            text = client.chat.completions.create(model="m", messages=later).choices[0].message.content
        assert text == RECORDED[3]["content"]
        with pytest.raises(openai.BadRequestError, match="over"):
            client.chat.completions.create(
                model="m", messages=[*later, {"role": "assistant", "content": "x"}, {"role": "user", "content": "w"}]
            )
        assert [model.id for model in client.models.list()] == ["replay"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_official_ollama_client_reads_what_the_replay_server_sends(replay, stream):
    ollama = pytest.importorskip("ollama")
    client = ollama.Client(host=replay.url)
    try:
        first = [{"role": "user", "content": "u"}]
        later = [*first, {"role": "assistant", "content": "I look."}, {"role": "user", "content": "v"}]
        if stream:
            parts = list(client.chat(model="m", messages=first, stream=True))
            calls = [call for part in parts for call in part.message.tool_calls or ()]
            assert parts[-1].prompt_eval_count == 50
            text = "".join(part.message.content or "" for part in client.chat(model="m", messages=later, stream=True))
        else:
            calls = client.chat(model="m", messages=first).message.tool_calls
            text = client.chat(model="m", messages=later).message.content
        assert calls[0].function.arguments["path"] == "a.py"
        assert text == RECORDED[3]["content"]
        assert [model.model for model in client.list().models] == ["replay"]
    finally:
        client._client.close()

"""What every model client keeps to (`agent/llm/base.py`), run against every entry of the registry."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest
from llm_servers import TOOL, WIRES, Heard, Reply, Script, Stop, call, client_for, says

from agent import clock
from agent.config import settings_of
from agent.context import MessageStore
from agent.errors import AnswerUnreadable, HistoryRefused, MakimonoError, ModelStalled, ModelUnreachable
from agent.llm import CLIENTS, Interrupted, make_client
from agent.values import End, Outcome, Plan, Span, Usage

SPOKEN = sorted(WIRES)  # those that talk to somebody else's server


class Place:
    """One client with a server behind it that gives `answers` in turn: (text, calls, finish)."""

    def __init__(self, name, folder, answers, **more):
        self.folder = folder / "task"
        self.folder.mkdir()
        self.server = None
        if name in WIRES:
            replies = [says(name, text, calls, finish=finish) for text, calls, finish in answers]
            self.server = Script(*replies)
            self.client, self.store = client_for(name, self.server.url, self.folder, **more)
        else:
            path = folder / "recorded.jsonl"
            path.write_text("".join(json.dumps(record) + "\n" for record in recorded(answers)))
            settings = settings_of({"llm": {"provider": name, name: {"messages": str(path)}}})
            self.store = MessageStore(self.folder, settings)
            self.client = make_client(settings, self.store, self.folder, **more)

    def records(self):
        return [json.loads(line) for line in (self.folder / "messages.jsonl").read_text().splitlines()]

    def close(self):
        self.client.close()
        if self.server is not None:
            self.server.close()


def recorded(answers):
    yield {"seq": 1, "role": "system", "content": "s"}
    for seq, (text, calls, finish) in enumerate(answers, 2):
        usage = Usage(100, 20).to_dict()
        record = {
            "seq": seq,
            "role": "assistant",
            "content": text or None,
            "usage": usage,
            "finish_reason": finish or ("tool_calls" if calls else "stop"),
        }
        if calls:
            record["tool_calls"] = [
                {
                    "id": one["id"],
                    "type": "function",
                    "function": {"name": one["name"], "arguments": json.dumps(one["arguments"])},
                }
                for one in calls
            ]
        yield record
        if len(answers) == 1:  # for summary requests
            yield {
                "seq": seq + 1,
                "kind": "summary",
                **{key: record[key] for key in ("role", "content", "usage", "finish_reason")},
            }


@pytest.fixture
def place(request, tmp_path):
    made = []

    def make(name, *answers, **more):
        made.append(Place(name, tmp_path, answers, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(params=CLIENTS.names())
def name(request):
    return request.param


@pytest.fixture(params=SPOKEN)
def spoken(request):
    return request.param


def begun(where):
    where.client.send_system_prompt("You are careful.")
    where.client.send_user_message("Fix the bug in a.py")
    return where


def test_every_entry_can_be_made_and_says_who_it_is(name, place):
    where = place(name, ("hello", (), None))
    assert where.client.provider == name
    assert where.client.model
    assert where.client.last is None
    assert where.client.describe()


def test_an_answer_is_returned_and_appended_with_usage_and_reason(name, place):
    where = begun(place(name, ("It is fixed. 直りました。", (), None)))
    assert where.client.get_response() == ("It is fixed. 直りました。", [])
    last = where.records()[-1]
    assert (last["role"], last["content"], last["finish_reason"]) == ("assistant", "It is fixed. 直りました。", "stop")
    assert last["usage"]["prompt_tokens"] == 100
    assert last["usage"]["completion_tokens"] == 20
    assert where.client.last.text == "It is fixed. 直りました。"
    assert where.client.last.usage == Usage(100, 20)


def test_a_tool_loop_goes_from_call_to_result_to_answer(name, place):
    calls = (
        call("read_file", {"path": "a.py"}, "call_1"),
        call("read_file", {"path": "b.py", "n": [1, {"x": None}]}, "call_2"),
    )
    where = begun(place(name, ("I look.", calls, None), ("done", (), None), tools=[TOOL]))
    text, made = where.client.get_response()
    assert text == "I look."
    assert [(one["name"], one["arguments"]) for one in made] == [
        ("read_file", {"path": "a.py"}),
        ("read_file", {"path": "b.py", "n": [1, {"x": None}]}),
    ]
    assert len({one["id"] for one in made}) == 2
    for one in made:
        where.store.add_message("tool", "content of " + one["arguments"]["path"], tool_call_id=one["id"])
    assert where.client.get_response() == ("done", [])
    assert [record["role"] for record in where.records()] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]


def test_a_result_by_name_answers_the_open_call(name, place):
    where = begun(place(name, ("", (call("read_file", {"path": "a.py"}),), None), ("done", (), None), tools=[TOOL]))
    where.client.get_response()
    where.client.send_function_result("read_file", {"lines": ["x"]})
    assert json.loads(where.records()[-1]["content"]) == {"lines": ["x"]}
    assert where.client.get_response()[0] == "done"


def test_an_answer_cut_at_its_limit_keeps_the_reason_and_its_calls(name, place):
    where = begun(place(name, ("", (call("read_file", {"path": "a"}),), "length"), tools=[TOOL]))
    _, calls = where.client.get_response()
    assert where.client.last.finish_reason == "length"
    assert where.records()[-1]["finish_reason"] == "length"
    assert len(calls) == 1


def test_an_empty_answer_is_recorded_and_does_not_spoil_the_next_request(name, place):
    where = begun(place(name, ("", (), None), ("done", (), None)))
    assert where.client.get_response() == ("", [])
    where.client.send_user_message("Please answer.")
    assert where.client.get_response() == ("done", [])


def test_request_json_is_there_only_while_the_request_is_under_way(name, place):
    where = begun(place(name, ("hello", (), None)))
    where.client.get_response()
    assert sorted(path.name for path in where.folder.iterdir() if path.name.startswith("request")) == ["requests.jsonl"]


def test_a_plan_of_spans_is_what_is_sent(name, place):
    where = begun(place(name, ("hello", (), None)))
    path = where.store.get_current_context_file()
    first = path.read_bytes().index(b"\n") + 1
    assert (
        where.client.get_response(Plan((Span(path, 0, first), Span(path, first)), tokens=50, output=64))[0] == "hello"
    )
    if where.server is not None and name != "anthropic":
        assert [message["role"] for message in where.server.asked[-1].json["messages"]] == ["system", "user"]


def test_a_summary_is_asked_outside_the_conversation(name, place):
    where = begun(place(name, ("a short summary", (), None)))
    before = where.records()
    path = where.folder / "summary_request.txt"
    path.write_text('Summarise:\n[USER]: "quoted" \\ 日本語 \t😀\n')
    assert where.client.get_summary(path) == "a short summary"
    assert where.records() == before
    assert where.client.last is None
    if where.server is not None:
        sent = where.server.asked[-1].json
        assert [message["role"] for message in sent["messages"]] == ["user"]
        assert sent["messages"][0]["content"] == path.read_text()
        assert "tools" not in sent


@pytest.mark.parametrize(("text", "finish"), [("half of it", "length"), ("  ", None)])
def test_a_summary_that_is_cut_or_empty_is_not_given(name, place, text, finish):
    where = place(name, (text, (), finish))
    path = where.folder / "summary_request.txt"
    path.write_text("Summarise this")
    with pytest.raises(AnswerUnreadable, match="summary"):
        where.client.get_summary(path)


def test_what_is_not_legal_is_not_sent(name, place):
    where = place(name, ("hello", (), None))
    with pytest.raises(HistoryRefused):
        where.client.get_response()
    begun(where).store.add_message("assistant", "I said so.")
    with pytest.raises(HistoryRefused, match="Last message"):
        where.client.get_response()
    assert where.server is None or where.server.asked == []


def test_a_stop_ends_the_wait_and_nothing_is_appended(spoken, tmp_path):
    outcome = Outcome(End.STOPPED)
    with Script(says(spoken, "never read", before=20.0)) as server:
        client, store = client_for(spoken, server.url, tmp_path, control=Stop(outcome, looks=0))
        store.add_message("user", "x")
        with pytest.raises(Interrupted) as stopped:
            client.get_response()
        server.released.set()
        client.close()
    assert stopped.value.outcome is outcome
    assert store.count_messages() == 1
    assert not (tmp_path / "request.json").exists()


def test_a_stream_that_is_cut_is_asked_again_and_then_given_up(spoken, tmp_path):
    make, kind = WIRES[spoken]
    half = Reply(make("half an answer", (), done=False)[:3], headers={"Content-Type": kind}, cut=True)
    with Script(half) as server, clock.use(clock.FakeClock()):
        client, store = client_for(spoken, server.url, tmp_path)
        store.add_message("user", "x")
        with pytest.raises(ModelStalled):
            client.get_response()
        assert len(server.asked) == 3
        client.close()
    assert store.count_messages() == 1
    assert not (tmp_path / "request.json").exists()


def test_a_stream_that_ends_too_early_and_politely_is_no_answer_either(spoken, tmp_path):
    make, kind = WIRES[spoken]
    half = Reply(make("half an answer", (), done=False)[:3], headers={"Content-Type": kind})
    with Script(half, says(spoken, "whole")) as server, clock.use(clock.FakeClock()):
        client, store = client_for(spoken, server.url, tmp_path)
        store.add_message("user", "x")
        assert client.get_response()[0] == "whole"
        client.close()
    assert store.count_messages() == 2


def test_a_server_that_is_away_for_a_moment_is_waited_for(spoken, tmp_path):
    heard = Heard()
    busy = Reply({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, 503)
    with Script(busy, busy, says(spoken, "hello")) as server, clock.use(clock.FakeClock()):
        client, store = client_for(spoken, server.url, tmp_path, events=heard)
        store.add_message("user", "x")
        assert client.get_response()[0] == "hello"
        client.close()
    assert len(heard.named("model_wait")) == 2
    assert [event for event, _ in heard.said if event != "model_wait"] == ["request_sent", "answer_received"]


def test_nobody_there_is_said_with_the_address(spoken, tmp_path):
    with Script(Reply()) as server:
        url = server.url
    with clock.use(clock.FakeClock()):
        client, store = client_for(spoken, url, tmp_path)
        store.add_message("user", "x")
        with pytest.raises(ModelUnreachable, match=r"127\.0\.0\.1"):
            client.get_response()
        check = client.check()
        client.close()
    assert not check.ok
    assert "127.0.0.1" in check.text


def test_the_bytes_of_a_request_stay_where_they_are_in_the_next(spoken, tmp_path):
    replies = [says(spoken, "", (call("read_file", {"path": "a.py"}),)), says(spoken, "done"), says(spoken, "again")]
    with Script(*replies) as server:
        client, _ = client_for(spoken, server.url, tmp_path, tools=[TOOL])
        client.send_system_prompt("system")
        client.send_user_message("user\nwith lines")
        client.get_response()
        client.send_function_result("read_file", "text")
        client.get_response()
        client.send_user_message("one more")
        client.get_response()
        client.close()
        bodies = [request.body for request in server.asked]
    mark = b',"cache_control":{"type":"ephemeral"}'  # of Anthropic's wire; it moves, and is no part of the prompt
    for earlier, later in pairwise(bodies):
        bare = earlier.replace(mark, b"").removesuffix(b"]}]}" if spoken == "anthropic" else b"]}")
        assert later.replace(mark, b"").startswith(bare)


def test_only_keys_that_the_wire_knows_are_sent(spoken, tmp_path):
    known = {
        "openai": {"role", "content", "tool_calls", "tool_call_id"},
        "lmstudio": {"role", "content", "tool_calls", "tool_call_id"},
        "ollama": {"role", "content", "tool_calls", "tool_name", "tool_call_id"},
        "anthropic": {"role", "content"},
    }[spoken]
    broken = call("read_file", "{not json") if spoken != "ollama" else call("read_file", {"path": "x"})
    with Script(says(spoken, "", (broken,)), says(spoken, "done")) as server:
        client, _ = client_for(spoken, server.url, tmp_path, tools=[TOOL])
        client.send_system_prompt("system")
        client.send_user_message("user")
        client.get_response()
        client.send_function_result("read_file", "text")
        client.get_response()
        client.close()
        for request in server.asked:
            for message in request.json["messages"]:
                assert set(message) <= known


def test_a_key_is_sent_and_never_shown(spoken, tmp_path):
    refusal = Reply({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}, 401)
    with Script(refusal) as server:
        client, store = client_for(spoken, server.url, tmp_path, api_key="sk-very-secret-key")
        store.add_message("user", "x")
        with pytest.raises(MakimonoError) as refused:
            client.get_response()
        check = client.check()
        sent = server.asked[-1].headers
        client.close()
    assert "sk-very-secret-key" in (sent.get("authorization", "") + sent.get("x-api-key", ""))
    for text in (str(refused.value), check.text, client.describe(), repr(client)):
        assert "sk-very-secret-key" not in text


def test_a_request_runs_without_the_vendors_packages():
    program = (
        "import sys, pathlib, tempfile\n"
        "sys.path.insert(0, 'tests')\n"
        "from llm_servers import Script, WIRES, client_for, says\n"
        "for wire in WIRES:\n"
        "    folder = pathlib.Path(tempfile.mkdtemp())\n"
        "    with Script(says(wire, 'hello')) as server:\n"
        "        client, store = client_for(wire, server.url, folder)\n"
        "        store.add_message('user', 'x')\n"
        "        assert client.get_response()[0] == 'hello'\n"
        "        client.close()\n"
        "print([name for name in ('openai', 'ollama', 'anthropic', 'httpx') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"

"""Servers of MCP as real processes and over HTTP: what they answer, and what becomes of those that misbehave."""

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest
from mcp_peers import HOSTILE, NODE, SDK_SERVER, over_http, package, python

from agent import proc
from agent.config import Settings
from agent.config.mcp_servers import McpServer
from agent.sandbox import Mounts, make_sandbox
from agent.tools.mcp.base import ServerFailed
from agent.tools.mcp.event_loop import WaitStopped
from agent.tools.mcp.results import raw_result
from agent.tools.mcp.servers import MOST_STARTS, McpServers


class Place:
    """Servers without a sandbox, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.stopping = False
        self.made = []

    def servers(self, **sections):
        sections = {name: McpServer(**section) for name, section in sections.items()}
        made = McpServers(sections, self.run, lambda: self.stopping, lambda _, one: (one.command, *one.args))
        self.made.append(made)
        return made

    def hostile(self, *args, timeout=20, **more):
        command, script = python(HOSTILE, *args)
        return self.servers(bad={"command": command, "args": script, "timeout": timeout, **more})

    def run(self, command, streams, *, network, env, stop):
        del network
        return proc.run(
            ["/bin/bash", "-c", command],
            env={"PATH": os.environ["PATH"], **env},
            cwd=self.folder,
            timeout=float("inf"),
            stop=stop,
            streams=streams.ends,
            started=streams.started,
            foreign=True,
        )


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    for one in made.made:
        one.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mcp")]


@pytest.fixture(scope="module")
def packages():
    with tempfile.TemporaryDirectory(prefix="makimono-mcp-") as folder:
        yield folder


def said(servers, name, tool, **arguments):
    result = raw_result(servers.call(name, tool, arguments))
    return result.text


def do(servers, word):
    return said(servers, "bad", "act", do=word)


def refused(servers, word):
    with pytest.raises(ServerFailed) as error:
        servers.call("bad", "act", {"do": word})
    return str(error.value)


# --- real servers --------------------------------------------------------------------------------------------------


def test_a_server_of_the_sdk_over_stdio_and_http(place):
    command, args = python(SDK_SERVER)
    with over_http([command, *args, "--http"]) as port:
        servers = place.servers(pipe={"command": command, "args": args}, web={"url": f"http://127.0.0.1:{port}/mcp"})
        lists = servers.list_all(["pipe", "web"])
        assert {name: [one.tool for one in tools] for name, tools in lists.items()} == {
            "pipe": ["add", "slow"],
            "web": ["add", "slow"],
        }
        assert lists["pipe"][0].digest("x") == lists["web"][0].digest("x")
        for name in lists:
            assert said(servers, name, "add", first=2, second=3) == "5"
            assert raw_result(servers.call(name, "add", {"first": "two"})).status == "error"


def test_server_everything_over_stdio_and_http(place, packages):
    script = package("server-everything", packages)
    with over_http([NODE, str(script), "streamableHttp"]) as port:
        servers = place.servers(
            pipe={"command": NODE, "args": [str(script)]}, web={"url": f"http://localhost:{port}/mcp"}
        )
        lists = servers.list_all(["pipe", "web"])
        for name, tools in lists.items():
            assert not isinstance(tools, str), tools
            assert "echo" in [one.tool for one in tools]
            assert said(servers, name, "echo", message="hi") == "Echo: hi"
            assert "[image, image/png," in said(servers, name, "get-tiny-image")
            assert "not fetched]" in said(servers, name, "get-resource-links", count=2)
            assert '"temperature":' in said(servers, name, "get-structured-content", location="New York")
            assert "[resource demo://" in said(servers, name, "get-resource-reference", resourceType="Text")


def test_server_filesystem_works_in_its_folder(place, packages):
    script = package("server-filesystem", packages)
    servers = place.servers(fs={"command": NODE, "args": [str(script), "."]})
    tools = servers.list_all(["fs"])["fs"]
    assert "write_file" in [one.tool for one in tools]
    assert "Successfully wrote" in said(servers, "fs", "write_file", path="a.txt", content="x\n")
    assert (place.folder / "a.txt").read_text() == "x\n"
    outside = raw_result(servers.call("fs", "read_text_file", {"path": "/etc/passwd"}))
    assert outside.status == "error"
    assert "root:" not in outside.text


# --- servers that misbehave ----------------------------------------------------------------------------------------


def test_a_server_that_dies_costs_the_call_and_starts_again(place):
    servers = place.hostile()
    assert do(servers, "hello") == "hello"
    assert refused(servers, "die") == (
        "it ended, or closed the connection; its process ended with exit code 7; stderr: I have had enough"
    )
    assert do(servers, "hello") == "hello"


def test_the_starts_of_a_server_are_bounded(place):
    servers = place.hostile()
    for _ in range(MOST_STARTS):
        assert "exit code 7" in refused(servers, "die")
    assert refused(servers, "hello") == f"it was started {MOST_STARTS} times in this task and is not started again"


def test_a_server_that_hangs_costs_its_time_limit(place):
    servers = place.hostile(timeout=1.5)
    servers.connected("bad")
    assert refused(servers, "hang") == "it did not answer within 1.5 s"
    assert do(servers, "hello") == "hello"


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("flood", "more than 32 MiB without an answer"),
        ("notify", "more than 5,000 messages without an answer"),
        ("long line", "a line of more than 8 MiB"),
    ],
)
def test_a_flood_is_ended(place, word, why):
    servers = place.hostile(timeout=120)
    assert why in refused(servers, word)
    assert do(servers, "hello") == "hello"


@pytest.mark.parametrize("word", ["garbage", "wrong id", "deep"])
def test_answers_to_nothing_are_no_answer(place, word):
    servers = place.hostile(timeout=2)
    assert "it did not answer within 2 s" in refused(servers, word)


@pytest.mark.parametrize("word", ["wrong type", "no result", "odd block"])
def test_a_result_of_a_wrong_form_is_refused(place, word):
    servers = place.hostile()
    assert "not in the form of the protocol" in refused(servers, word)
    assert do(servers, "hello") == "hello"


def test_results_of_every_form_are_text(place):
    servers = place.hostile()
    assert do(servers, "picture") == "[image, image/png, 12 bytes: not shown]"
    assert do(servers, "link") == "[link to the resource file:///etc/passwd: not fetched]"
    assert do(servers, "resource") == "[resource a:b]\ninside"
    assert do(servers, "nothing") == "(the tool returned nothing)"
    assert do(servers, "noise") == "after the noise"
    assert do(servers, "twice") == "first"
    assert do(servers, "hello") == "hello"
    wrong = raw_result(servers.call("bad", "act", {"do": "error"}))
    assert (wrong.status, wrong.text) == ("error", "it went wrong")
    assert refused(servers, "refuse") == "error -32000: not today"


def test_a_server_gets_no_answer_of_the_model(place):
    servers = place.hostile()
    assert "Sampling not supported" in do(servers, "ask")


def test_a_server_that_closes_its_output_is_ended(place):
    servers = place.hostile()
    assert "closed the connection" in refused(servers, "close")
    assert do(servers, "hello") == "hello"


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("dead", "its process ended with exit code 3"),
        ("login", "You are not logged in. Visit https://login.example/device"),
        ("silent", "it did not start a session within 2 s"),
        ("flood", "more than 32 MiB without an answer"),
    ],
)
def test_a_server_that_does_not_start_has_no_tools(place, word, why):
    servers = place.hostile("--start", word, timeout=2 if word == "silent" else 20)
    found = servers.list_all(["bad"])["bad"]
    assert isinstance(found, str)
    assert why in found


@pytest.mark.parametrize(
    ("method", "way", "why"),
    [
        ("initialize", "die", "it ended, or closed the connection; its process ended with exit code 9"),
        ("initialize", "hang", "it did not start a session within 3 s"),
        ("initialize", "refuse", "error -32603: not in this house"),
        ("initialize", "wrong form", "its answer is not in the form of the protocol: "),
        ("initialize", "old", "Unsupported protocol version from the server: 1999-01-01"),
        ("tools/list", "die", "it ended, or closed the connection; its process ended with exit code 9"),
        ("tools/list", "hang", "it did not list its tools within"),
        ("tools/list", "shout", "it did not list its tools within"),
        ("tools/list", "refuse", "error -32603: not in this house"),
        (
            "tools/list",
            "wrong form",
            "its answer is not in the form of the protocol: tools: Input should be a valid list",
        ),
        ("tools/list", "same page", "its list of tools has more than 50 pages"),
        ("tools/list", "crowd", "it lists more than 1,000 tools"),
        ("tools/list", "half", "it ended, or closed the connection"),
    ],
)
def test_a_server_that_fails_at_a_method_has_no_tools_and_is_blamed_for_nothing_else(place, method, way, why):
    servers = place.hostile("--at", method, "--way", way, timeout=3 if way in ("hang", "shout") else 20)
    found = servers.list_all(["bad"])["bad"]
    assert isinstance(found, str)
    assert found.startswith(why)
    if way not in ("die", "half"):  # this program has ended it, so its exit code says nothing
        assert "exit code" not in found


def test_notifications_and_shouts_during_a_call_change_nothing(place):
    servers = place.hostile()
    before = servers.connected("bad").tools
    assert do(servers, "changed") == "after the notifications"
    assert do(servers, "shout") == "after the shouting"
    assert refused(servers, "both") == "error 1: no"
    assert servers.connected("bad").tools is before


def test_a_command_that_does_not_exist_is_named(place):
    servers = place.servers(bad={"command": "no-such-program"})
    assert "exit code 127" in servers.list_all(["bad"])["bad"]


def test_slow_and_noisy_starts_are_waited_for(place):
    command, args = python(HOSTILE, "--start", "slow1")
    _, noisy = python(HOSTILE, "--start", "garbage")
    servers = place.servers(slow={"command": command, "args": args}, noisy={"command": command, "args": noisy})
    lists = servers.list_all(["slow", "noisy"])
    assert [[one.tool for one in tools] for tools in lists.values()] == [["act"], ["act"]]


def test_a_stop_ends_a_call_at_once(place):
    servers = place.hostile(timeout=60)
    servers.connected("bad")
    threading.Timer(0.5, lambda: setattr(place, "stopping", True)).start()
    with pytest.raises(WaitStopped):
        servers.call("bad", "act", {"do": "hang"})


@pytest.fixture
def sandboxed(place):
    """The same with a sandbox, with the user of a task."""
    folder = Path(tempfile.mkdtemp(prefix="makimono-mcp-"))
    folder.chmod(0o711)
    sandbox = make_sandbox(Settings(), uuid=str(uuid4()), base_dir=folder)
    if sandbox.kind != "bubblewrap":
        pytest.skip("no bubblewrap here")
    place.folder = folder / "work"
    place.folder.mkdir()
    shutil.copy(HOSTILE, place.folder / "server.py")
    if sandbox.uid is not None:
        os.chown(place.folder, sandbox.uid, sandbox.uid)

    def run(command, streams, *, network, env, stop):
        mounts = Mounts(place.folder)
        return sandbox.run(command, mounts, timeout=float("inf"), network=network, env=env, stop=stop, streams=streams)

    place.run = run
    yield lambda **more: place.servers(bad={"command": "python3", "args": ["server.py"], "timeout": 20, **more})
    for one in place.made:
        one.close()
    shutil.rmtree(folder)


def test_nothing_of_a_server_runs_between_calls(place, sandboxed):
    servers = sandboxed()
    assert do(servers, "background") == "begun"
    ticks = place.folder / "ticks"
    until = time.monotonic() + 10
    while not ticks.exists() and time.monotonic() < until:
        assert do(servers, "hello") == "hello"
    before = ticks.read_bytes()
    time.sleep(0.5)
    assert ticks.read_bytes() == before
    while len(ticks.read_bytes()) == len(before) and time.monotonic() < until:
        assert do(servers, "hello") == "hello"
    assert len(ticks.read_bytes()) > len(before)
    servers.close()
    time.sleep(0.1)
    before = ticks.read_bytes()
    time.sleep(0.3)
    assert ticks.read_bytes() == before, "the daemon of the server lives on"


def test_arguments_and_folders_with_every_character_arrive_whole(place):
    odd = [
        "$(touch made)",
        "a b",
        "'",
        '"',
        "-n",
        "--",
        "`x`",
        "line\nline",
        "\\",
        "*",
        "",
        "ファイル",
        "&& false",
        "~",
    ]
    folder = place.folder / "-odd $(x) 'name"
    folder.mkdir()
    script = folder / "show.py"
    script.write_text(
        "import json, os, sys\n"
        "sys.stderr.write(json.dumps([sys.argv[1:], os.path.basename(os.getcwd())]))\n"
        "sys.exit(3)\n"
    )
    servers = place.servers(bad={"command": sys.executable, "args": ["show.py", *odd], "cwd": folder.name})
    found = servers.list_all(["bad"])["bad"]
    assert json.loads(found.partition("stderr: ")[2]) == [odd, folder.name]
    assert sorted(path.name for path in folder.iterdir()) == ["show.py"]


def test_a_server_sees_no_variable_of_another_process(sandboxed, monkeypatch):
    monkeypatch.setenv("MAKIMONO_TEST_TOKEN", "s3cr3t-of-the-parent")
    servers = sandboxed(env={"TOKEN": "of-the-server"})
    found = do(servers, "environments")
    assert "TOKEN=of-the-server" in found
    assert "s3cr3t-of-the-parent" not in found


def test_a_server_in_a_sandbox_ends_with_its_session(sandboxed):
    servers = sandboxed(timeout=1.5)
    assert do(servers, "hello") == "hello"
    assert "it did not answer within 1.5 s" in refused(servers, "hang")
    assert do(servers, "hello") == "hello"
    assert "exit code 7; stderr: I have had enough" in refused(servers, "die")


def test_servers_start_at_the_same_time(place):
    """Each waits until all three run."""
    command, args = python(HOSTILE, "--start", "meet3")
    servers = place.servers(**{name: {"command": command, "args": args} for name in ("one", "two", "three")})
    lists = servers.list_all(["one", "two", "three"])
    assert [(name, [one.tool for one in tools]) for name, tools in lists.items()] == [
        ("one", ["act"]),
        ("two", ["act"]),
        ("three", ["act"]),
    ]


def test_a_stop_while_servers_start_leaves_none(place):
    command, args = python(HOSTILE, "--start", "silent")
    servers = place.servers(**{name: {"command": command, "args": args} for name in ("one", "two", "three")})
    threading.Timer(0.5, lambda: setattr(place, "stopping", True)).start()
    with pytest.raises(WaitStopped):
        servers.list_all(["one", "two", "three"])
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("mcp ")], names


# --- http ----------------------------------------------------------------------------------------------------------


def test_an_address_without_a_server(place):
    servers = place.servers(web={"url": "http://127.0.0.1:9/mcp", "timeout": 5})
    found = servers.list_all(["web"])["web"]
    assert isinstance(found, str)
    assert "ConnectError" in found


def web_answers(place, answer, *, after=lambda _servers: None, **more):
    """The text of the failure of a server over HTTP that answers every request with `answer`."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append({":method": "GET"})
            head(self, 200, Content_Type="text/event-stream")
            self.wfile.write(b"retry: 0\n\n")

        def do_DELETE(self):
            head(self, 200, Content_Length="0")

        def do_POST(self):
            self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
            asked.append({":method": "POST", **{name.lower(): value for name, value in self.headers.items()}})
            try:
                answer(self)
            except (BrokenPipeError, ConnectionResetError):
                pass

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
        servers = place.servers(web={"url": url, "timeout": 5, **more})
        found = servers.list_all(["web"])["web"]
        after(servers)
        return found, asked
    finally:
        server.shutdown()
        server.server_close()


def head(handler, status, **headers):
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def test_a_login_over_http_is_named(place):
    found, asked = web_answers(place, lambda one: head(one, 401, Content_Length="0"), headers={"X-Key": "abc"})
    assert found == "it answered 401: it wants a login, or refuses this one; put a token into `headers`"
    assert asked[0]["x-key"] == "abc"


def test_a_redirect_to_another_host_is_not_followed(place):
    reached = []

    def away(one):
        head(one, 307, Location="http://localhost:9/elsewhere", Content_Length="0")
        reached.append(one.path)

    found, _ = web_answers(place, away)
    assert "not followed" in found
    assert set(reached) == {"/mcp"}


def test_an_endless_body_is_ended(place):
    def endless(one):
        head(one, 200, Content_Type="application/json")
        while True:
            one.wfile.write(b"x" * 65536)

    found, _ = web_answers(place, endless)
    assert "a body of more than 8 MiB" in found


def test_endless_events_are_ended(place):
    def endless(one):
        head(one, 200, Content_Type="text/event-stream")
        while True:
            one.wfile.write(b"event: message\ndata: {}\n\n" * 1000)

    found, _ = web_answers(place, endless)
    assert isinstance(found, str)


def test_a_compressed_body_is_refused(place):
    def bomb(one):
        head(one, 200, Content_Type="application/json", Content_Encoding="gzip")
        one.wfile.write(b"\x1f\x8b")

    found, _ = web_answers(place, bomb)
    assert "compressed" in found


def test_the_stream_of_messages_outside_of_calls_is_not_opened(place):
    def answer(one):
        message = json.loads(one.body)
        if message["method"] == "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "w", "version": "1"}}
            result = {"protocolVersion": message["params"]["protocolVersion"], **about}
        elif message["method"] == "tools/list":
            result = {"tools": []}
        else:
            head(one, 202 if "id" not in message else 404, Content_Length="0")
            return
        data = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        head(one, 200, Content_Type="application/json", Mcp_Session_Id="abc", Content_Length=str(len(data)))
        one.wfile.write(data)

    def wait_then(servers):
        time.sleep(0.5)

    found, asked = web_answers(place, answer, after=wait_then)
    assert found == []
    assert [one[":method"] for one in asked].count("GET") == 0


def test_a_page_of_html_is_no_server(place):
    def page(one):
        head(one, 200, Content_Type="text/html")
        one.wfile.write(b"<html>")

    found, _ = web_answers(place, page)
    assert "Unexpected content type" in found


def test_the_sdk_is_imported_with_the_first_server_only():
    code = (
        "import sys; import agent.worker.worker, agent.worker.handler, agent.worker.conversation;"
        "bad = [name for name in ('mcp', 'mcp_types', 'httpx2', 'anyio', 'agent.tools.mcp') "
        "if name in sys.modules]; assert not bad, bad"
    )
    done = proc.run([sys.executable, "-c", code], env={}, cwd=Path(__file__).parents[3], timeout=60)
    assert done.returncode == 0, done.output

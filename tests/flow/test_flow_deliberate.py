"""`deliberate`: the real program, and reviewers on loopback."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest
import quick_start
from flow_home import SECONDS, git
from length import either
from llm_servers import Reply, Script, call, openai_events, says
from reviewing import Panel, texts_of, vote

BROKEN = Reply(
    openai_events("", [call("cast_vote", vote("D"))])[:3], headers={"Content-Type": "text/event-stream"}, cut=True
)


@pytest.fixture
def here(home):
    made = []

    def start(panel, config="consensus: {rounds: 0}\n"):
        server = Script(panel)
        made.append(server)
        return home(server=server, config=config)

    yield start
    for server in made:
        server.released.set()


def command(home, *args):
    return [sys.executable, str(home.main), "deliberate", *args, "--config", str(home.config)]


def deliberate(home, *args, code=0, **more):
    """stdout of one call."""
    argv = ["deliberate", *args, "--config", home.config]
    done = quick_start.run(argv, cwd=home.folder, env={**home.environment, **more}, timeout=SECONDS)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def events_of(text):
    return [json.loads(line) for line in text.splitlines()]


def check_ends(events):
    """Each stream has exactly one end, as its last event."""
    streams = {}
    for event in events:
        if event["event"].startswith("stream."):
            streams.setdefault((event["persona"], event["phase"], event["round"]), []).append(event["event"])
    assert streams
    for found in streams.values():
        assert found.count("stream.end") == 1
        assert found[-1] == "stream.end"


@pytest.mark.parametrize(
    ("letters", "code", "word"), [("AAA", 0, "APPROVED"), ("DDA", 10, "DENIED"), ("CAA", 11, "CONDITIONAL")]
)
def test_the_exit_code_is_the_decision(here, letters, code, word):
    home = here(Panel(dict(zip(("correctness", "safety", "upkeep"), letters, strict=True))))
    text = deliberate(home, "Shall we?", code=code)
    assert text.startswith(f"{word}: ")
    assert "close to one vote" in text
    result = json.loads(deliberate(home, "Shall we?", "--json", code=code))
    assert (result["decision"], result["exit_code"], len(result["votes"])) == (word, code, 3)
    assert result["distinct_models"] == 1


def test_failed_safe_is_12_and_shows_no_votes(here):
    home = here(Panel(correctness="Yes.", safety="Yes."))
    result = json.loads(deliberate(home, "Shall we?", "--json", code=12))
    assert result["votes"] == {}
    assert result["excluded"] == dict.fromkeys(("correctness", "safety"), "CONSENSUS_SCHEMA_RETRY_EXCEEDED")


def test_a_change_is_judged_with_its_rules_and_the_code_around_it(here):
    panel = Panel(safety=vote("D", findings=[("calc.py", 2, "It leaks."), ("calc.py", 77, "It is not there.")]))
    home = here(panel)
    home.commit("default", {"AGENTS.md": "Use unittest.\n"}, message="Rules")
    home.commit("default", {"calc.py": "def total(prices):\n    return round(sum(prices))\n"}, message="Approve me")
    text = deliberate(home, "--diff", "main~1..main", "--repo", str(home.repos["default"]), code=10)
    assert "calc.py:2: It leaks." in text
    assert "findings whose place does not exist: 1 of safety" in text
    seen = {persona: texts_of(panel.of(persona)[0])[1] for persona in ("correctness", "safety", "upkeep")}
    assert all("+    return round(sum(prices))" in one and "Approve me" not in one for one in seen.values())
    assert "Use unittest." in seen["upkeep"]
    assert "2:     return round(sum(prices))" in seen["upkeep"]


def test_ranges_are_those_of_git(here):
    home = here(Panel())
    home.commit("default", {"b.txt": "b\n"}, branch="topic")
    repository = home.folder / "mine"
    git("clone", "-q", str(home.repos["default"]), str(repository), cwd=home.folder)
    git("checkout", "-q", "topic", cwd=repository)
    for span in ("main...topic", "main"):
        git("branch", "-f", "main", "origin/main", cwd=repository)
        result = json.loads(deliberate(home, "--diff", span, "--repo", str(repository), "--json"))
        assert result["decision"] == "APPROVED"
    home.commit("default", {"long.txt": "a line\n" * 200_000}, branch="long")
    git("fetch", "-q", cwd=repository)
    for span, why in (
        ("main..origin/long", "longer than 1 MiB"),
        ("main..main", "nothing differs"),
        ("nowhere..main", "has no commit 'nowhere'"),
    ):
        wrong = json.loads(deliberate(home, "--diff", span, "--repo", str(repository), "--json", code=2))
        assert why in wrong["error"]["message"]


def test_a_file_is_the_question_and_the_mode_is_chosen(here):
    panel = Panel()
    home = here(panel)
    plan = home.folder / "plan.md"
    plan.write_text("# The plan\n\nRewrite it all.\n")
    deliberate(home, "--file", str(plan), "--mode", "debate", "--rounds", "2")
    assert [phase for _, phase in panel.asked] == ["thinking"] * 3 + ["debate"] * 6 + ["voting"] * 3
    assert all("Rewrite it all." in texts_of(body)[1] for body in panel.bodies)
    panel.asked.clear()
    deliberate(home, "--file", str(plan), "--mode", "vote")
    assert [phase for _, phase in panel.asked] == ["thinking"] * 3


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "takes one of PROMPT"),
        (("Shall we?", "--diff", "a..b"), "takes one of PROMPT"),
        (("  ",), "PROMPT is empty"),
        (("Shall we?", "--repo", "."), "--repo belongs to --diff"),
        (("Shall we?", "--mode", "war"), "allowed are vote, debate"),
        (("Shall we?", "--mode", "vote", "--rounds", "1"), "--mode vote has no rounds"),
        (("Shall we?", "--mode", "debate", "--rounds", "0"), "needs at least one round"),
        (("--file", "nowhere.md"), "--file nowhere.md: No such file"),
        (("--diff", "a..b", "--repo", "/"), "--repo /: there is no git repository"),
    ],
)
def test_wrong_usage_is_2_and_asks_nobody(here, args, why):
    panel = Panel()
    home = here(panel)
    for more in ((), ("--stream",)):
        text = deliberate(home, *args, "--json", *more, code=2)
        found = json.loads(text)
        assert why in (found.get("error") or found)["message"]
    assert panel.asked == []


def test_a_stream_of_json_has_one_event_a_line_and_the_result_last(here):
    home = here(Panel(safety=[BROKEN, "A"]))
    events = events_of(deliberate(home, "Shall we?", "--stream", "--json", MAGI_CLI_STREAM_RETRY_COUNT="1"))
    check_ends(events)
    assert (events[-1]["event"], events[-1]["decision"]) == ("result", "APPROVED")
    (error,) = [one for one in events if one["event"] == "stream.error"]
    assert (error["persona"], error["retrying"], error["discard_from_seq"]) == ("safety", True, 1)


def test_no_retry_of_streams_excludes_the_reviewer(here):
    home = here(Panel(safety=BROKEN))
    events = events_of(deliberate(home, "Shall we?", "--stream", "--json", code=12, MAGI_CLI_STREAM_RETRY_COUNT="0"))
    check_ends(events)
    assert events[-1]["excluded"] == {"safety": "consensus_stream_lost"}


def streaming(home, **more):
    """A `deliberate --stream --json` as a process, with output and errors as pipes."""
    args = command(home, "Shall we?", "--stream", "--json")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(args, cwd=home.folder, env=home.environment, **pipes, **more)


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_ctrl_c_and_sigterm_end_each_stream_once(here, number, code, said):
    pieces = openai_events("", [call("cast_vote", vote("A"))])
    slow = Reply(pieces[:3], headers={"Content-Type": "text/event-stream"}, hold=SECONDS)
    home = here(Panel(dict.fromkeys(("correctness", "safety", "upkeep"), slow)))
    process = streaming(home, text=True, start_new_session=True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if len({json.loads(one)["persona"] for one in lines if "stream.token" in one}) == 3:
            break
    os.killpg(process.pid, number)
    rest, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == code, errors
    events = events_of("".join(lines) + rest)
    check_ends(events)
    assert {one["reason"] for one in events if one["event"] == "stream.end"} == {"cancelled"}
    assert events[-1] == {"event": "error", "code": said, "exit_code": code}
    assert "Traceback" not in errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_reader_that_takes_nothing_does_not_keep_the_command(here, number, code):
    text = json.dumps(vote("A", "long words " * 180))
    home = here(Panel(dict.fromkeys(("correctness", "safety", "upkeep"), text)))
    process = streaming(home)
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    assert os.read(process.stdout.fileno(), 10) == b'{"session"'
    process.send_signal(number)
    try:
        assert process.wait(SECONDS) == code
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("args", [(), *either((), [("--json",), ("--stream",)]), ("--stream", "--json")])
def test_output_that_cannot_be_written_is_an_error(here, args):
    home = here(Panel())
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(home, "Shall we?", *args),
            cwd=home.folder,
            env=home.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "the output cannot be written: No space left on device" in done.stderr


def test_a_reader_that_ends_changes_no_decision(here):
    home = here(Panel(safety=vote("D", findings=[]), upkeep="D"))
    process = subprocess.Popen(
        command(home, "Shall we?", "--stream", "--json"),
        cwd=home.folder,
        env=home.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert json.loads(process.stdout.readline())["event"] == "stream.token"
    process.stdout.close()
    assert (process.wait(SECONDS), process.stderr.read()) == (10, "")
    process.stderr.close()


def test_a_terminal_shows_tokens_of_each_reviewer_as_they_come(here):
    text = json.dumps(vote("A", "Because \u001b[31mit is good."))
    held = threading.Event()
    pieces = openai_events(text)

    def play(request):
        made = Panel()
        made.answer(request.json)
        if made.asked[0][0] != "safety":
            held.wait(SECONDS)
        return Reply(pieces, headers={"Content-Type": "text/event-stream"})

    home = here(play)
    control, terminal = pty.openpty()
    process = subprocess.Popen(
        command(home, "Shall we?"), cwd=home.folder, env=home.environment, stdout=terminal, stderr=subprocess.DEVNULL
    )
    os.close(terminal)
    shown = b""
    while b"APPROVE" not in shown:
        shown += os.read(control, 4096)
    assert shown.startswith(b"[safety, thinking] {")
    held.set()
    try:
        while chunk := os.read(control, 4096):
            shown += chunk
    except OSError:  # the terminal is closed
        pass
    os.close(control)
    assert process.wait(SECONDS) == 0
    assert b"\x1b[31m" not in shown
    assert b"APPROVED: " in shown
    assert b"[upkeep, thinking]" in shown


def test_limits_hold_and_requests_are_recorded(here):
    panel = Panel()
    home = here(panel, "consensus: {rounds: 1, slots: 1}\nlimits: {tokens: 300}\n")
    wrong = json.loads(deliberate(home, "Shall we?", "--json", code=2))
    assert "`limits.tokens` is 300; 360 were used" in wrong["error"]["message"]
    assert len(panel.asked) == 3
    (folder,) = (home.folder / "contexts" / "deliberations").iterdir()
    found = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    assert [one["purpose"] for one in found] == ["vote"] * 3


def test_a_server_that_is_gone_fails_safe(here):
    home = here(lambda _request: says("openai", "x", cut=True, done=False))
    home.config.write_text(home.config.read_text().replace("model: m,", "model: m, timeout: 5, idle_timeout: 2,"))
    text = deliberate(home, "Shall we?", code=12, MAGI_CLI_STREAM_RETRY_COUNT="0")
    assert text.startswith("FAILED_SAFE: ")
    assert "no vote (consensus_stream_lost): the stream of " in text
    assert "`./main.py doctor` asks the model" in text

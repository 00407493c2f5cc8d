"""Section `assembler` of the configuration: what each of its keys changes in the requests of the whole program."""

import json

import pytest
from flow_home import FlowHome, do, finish, write
from llm_servers import Script, says

LINES = "".join(f"line {number}: the quick brown fox jumps over the lazy dog\n" for number in range(60))
READS = [write(f"f{number}.txt", LINES) for number in range(8)]
TITLE = "Round late"
NOTES = [
    {"content": f"Fact {number} of the money module.", "source": f"task {number}", "relevance": 0.9 - number / 100}
    for number in range(9)
]


def model(steps):
    """A server that takes its steps one after the other, whatever a request leaves out, and writes summaries."""
    left = iter([*steps, finish(TITLE)])

    def answer(request):
        if "tools" not in request.json:
            return says("openai", "Wrote files one by one, each with sixty lines; the sum is still to be rounded.")
        text, calls = next(left)
        return says("openai", text, calls, usage=None)

    return Script(answer)


MISSING = "no.such:Layer"


@pytest.fixture
def run(tmp_path):
    made = []

    def start(assembler, *, steps=READS, name="m"):
        folder = tmp_path / f"home-{len(made)}"
        folder.mkdir()
        home = FlowHome(folder, server=model(steps), config=f"assembler: {json.dumps(assembler)}\n")
        home.config.write_text(home.config.read_text().replace("model: m,", f"model: {name},"))
        made.append(home)
        (folder / "notes.jsonl").write_text("".join(json.dumps(one) + "\n" for one in NOTES))
        if "memory" in assembler:
            home.pin(*(one for one in assembler["memory"] if one != MISSING))
        home.issue(1, TITLE, "Each price is rounded; round the sum.")
        home.once()
        return home

    yield start
    for one in made:
        one.close()


def sent(home):
    """The messages of each request of the conversation."""
    return [one.json["messages"] for one in home.server.asked if "tools" in one.json]


def planned(home):
    log = [json.loads(line) for line in (home.kept(1) / "worker.log").read_text().splitlines()]
    return [one for one in log if one["event"] == "context_assembled"]


def test_system_prompt_is_the_first_message_of_every_request(run):
    home = run({"system_prompt": "You are Kana, and you call finish at the end."}, steps=READS[:2])
    assert {messages[0]["content"] for messages in sent(home)} == {"You are Kana, and you call finish at the end."}
    ours = run({}, steps=[])
    assert "Kana" not in sent(ours)[0][0]["content"]


def test_working_memory_limit_is_the_most_messages_of_the_conversation_in_a_request(run):
    home = run({"working_memory_limit": 4})
    assert [len(messages) - 2 for messages in sent(home)] == [0, 2, 4, 4, 4, 4, 4, 4, 4]
    for messages in sent(home):
        assert [one["role"] for one in messages[:2]] == ["system", "user"]
        assert TITLE in messages[1]["content"]
    everything = run({})
    assert [len(messages) - 2 for messages in sent(everything)] == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    shown = json.loads(everything.run("request", everything.row(1)["uuid"], "--messages", "4", "--json", code=0)[1])
    assert len(shown["request"]["messages"]) == 6
    rows = {row["layer"]: row for row in shown["why"]["plan"]}
    view = (everything.kept(1) / "current.jsonl").read_text().splitlines()
    assert (rows["working"]["messages"], rows["not sent"]["messages"]) == (4, len(view) - 6)
    assert rows["not sent"]["state"] == "left out"


def test_memory_and_semantic_memory_limit_are_what_the_briefing_recalls(run):
    home = run({"memory": ["tests.memory_layers:Notes"], "semantic_memory_limit": 3}, steps=READS[:1])
    [first, second] = sent(home)
    briefing = first[1]["content"]
    assert [f"Fact {number} of" in briefing for number in range(5)] == [True, True, True, False, False]
    assert briefing.splitlines()[0].endswith(' source="memory">>>')
    assert briefing.index("Fact 0") < briefing.index("Each price is rounded")
    assert second[1]["content"] == briefing
    [asked] = [json.loads(line) for line in (home.folder / "asked.jsonl").read_text().splitlines()]
    assert asked == {"query": f"{TITLE}\n\nEach price is rounded; round the sum.", "limit": 3}
    for one in planned(home):
        assert one["counts"]["semantic"] == 3
        assert one["layers"]["semantic"] > 0
        assert one["dropped"] == []
    record = home.lines(1, "messages.jsonl")[1]["memory"]
    assert record["count"] == 3
    shown = json.loads(home.run("request", home.row(1)["uuid"], "--json", code=0)[1])
    [row] = [row for row in shown["why"]["plan"] if row["layer"] == "semantic"]
    assert (row["messages"], row["state"]) == (3, "kept")
    nothing = run({}, steps=[])
    assert "Fact" not in sent(nothing)[0][1]["content"]


def test_a_memory_that_cannot_be_had_is_told_and_the_task_is_done(run):
    layers = ["tests.memory_layers:Broken", "tests.memory_layers:Unbuildable", MISSING]
    home = run({"memory": [*layers, "tests.memory_layers:Notes"]}, steps=READS[:1])
    assert home.row(1)["status"] == "completed"
    assert "Fact 0" in sent(home)[0][1]["content"]
    assert planned(home)[0]["dropped"] == layers
    said = "\n".join([*home.said(1), *home.pulls()])
    assert "long-term memory tests.memory_layers:Broken" in said
    assert "the index is damaged" in said


def test_max_tokens_and_token_safety_margin_are_limits_of_every_request(run):
    reads = [do("read_file", path="calc.py"), *READS, *[write(f"g{n}.txt", LINES) for n in range(8)]]
    named = {"name": "llama3:8b"}  # of a known family: no wider margin until its server has reported
    free = run({}, steps=reads, **named)
    assert {one["limit"] for one in planned(free)} == {22_500}  # (32,000 - 8,000) less 1/16
    assert free.lines(1, "compactions.jsonl") == []
    capped = run({"max_tokens": 12_000}, steps=reads, **named)
    assert {one["limit"] for one in planned(capped)} == {8_438}
    assert capped.lines(1, "compactions.jsonl") != []
    most = {home: max(len(json.dumps(messages)) for messages in sent(home)) for home in (free, capped)}
    assert most[capped] < 0.8 * most[free]
    careful = run({"token_safety_margin": 0.5}, steps=reads[:2], **named)
    assert {one["limit"] for one in planned(careful)} == {16_000}

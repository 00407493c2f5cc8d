"""Streams of answers: tokens as they come, and exactly one end for each."""

import threading
import time

import pytest
from llm_servers import Reply, Script, call, openai_events, says
from reviewing import Panel, panel_engine, settings_for, vote

from agent import clock
from agent.consensus import ConsensusRequest, Decision, StreamingEmitter
from agent.consensus.streaming import WAITING

QUESTION = "Shall we?"


def deliberate(folder, panel, *, during=None, **section):
    """(decision or None, events) of one deliberation without a debate."""
    events = []
    with Script(panel) as server:
        settings = settings_for(server.url, consensus={"rounds": 0, **section})
        with panel_engine(folder, settings, consumer=events.append) as (engine, *_):
            if during is not None:
                threading.Thread(target=during, args=(engine,), daemon=True).start()
            decision = engine.execute(ConsensusRequest(QUESTION))
    return decision, events


def streams(events):
    """(persona, phase, round) → its events."""
    found = {}
    for event in events:
        found.setdefault((event["persona"], event["phase"], event["round"]), []).append(event)
    return found


def check(events):
    """Each stream ends once, with its last event, and its numbers rise."""
    for found in streams(events).values():
        assert [one["event"] for one in found].count("stream.end") == 1
        assert found[-1]["event"] == "stream.end"
        numbers = [one["seq"] for one in found]
        assert numbers == sorted(set(numbers))


def text_of(found):
    """The tokens of a stream that are not void."""
    kept = []
    for event in found:
        if event["event"] == "stream.token":
            kept.append(event)
        elif event["event"] == "stream.error" and event["retrying"]:
            kept = [one for one in kept if one["seq"] < event["discard_from_seq"]]
    assert len({one["attempt"] for one in kept}) <= 1, "two attempts are never joined"
    return "".join(one["chunk"] for one in kept)


def test_tokens_of_each_reviewer_come_as_they_are_written(tmp_path):
    answer = '{"reason": "Yes.", "findings": [], "conditions": [], "vote": "APPROVE"}'
    decision, events = deliberate(tmp_path, Panel(dict.fromkeys(("correctness", "safety", "upkeep"), answer)))
    assert decision.decision is Decision.APPROVED
    check(events)
    found = streams(events)
    assert set(found) == {(name, "thinking", 0) for name in ("correctness", "safety", "upkeep")}
    for one in found.values():
        assert text_of(one) == answer
        assert sum(event["event"] == "stream.token" for event in one) > 5
        assert (one[-1]["reason"], one[-1]["session"]) == ("done", "s")


def test_the_first_token_is_there_within_a_second_of_the_servers_first_and_before_the_next(tmp_path):
    pieces = openai_events("", [call("cast_vote", vote("A"))])
    sent, got, came = [], [], threading.Event()

    def play(request):
        del request
        sent.append(time.monotonic())
        return Reply([*pieces[:2], came, *pieces[2:]], headers={"Content-Type": "text/event-stream"})

    def take(event):
        if event["event"] == "stream.token":
            got.append(time.monotonic())
            came.set()

    with Script(play) as server:
        settings = settings_for(server.url, consensus={"rounds": 0})
        with panel_engine(tmp_path, settings, consumer=take) as made:
            made[0].execute(ConsensusRequest(QUESTION))
    assert min(got) - min(sent) < 1


def broken():
    pieces = openai_events("", [call("cast_vote", vote("D", "A first try that breaks off."))])
    return Reply(pieces[:3], headers={"Content-Type": "text/event-stream"}, cut=True)


def test_a_broken_stream_begins_anew_and_says_which_tokens_are_void(tmp_path):
    with clock.use(clock.FakeClock()):
        decision, events = deliberate(tmp_path, Panel(safety=[broken(), broken(), vote("A", "The second.")]))
    assert decision.decision is Decision.APPROVED
    check(events)
    found = streams(events)["safety", "thinking", 0]
    errors = [one for one in found if one["event"] == "stream.error"]
    assert [(one["retrying"], one["attempt"]) for one in errors] == [(True, 1), (True, 2)]
    assert errors[0]["discard_from_seq"] == 1
    assert errors[1]["discard_from_seq"] == errors[0]["seq"] + 1
    assert '"reason": "The second."' in text_of(found)
    assert "A first" not in text_of(found)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_stream_that_breaks_too_often_excludes_its_reviewer(tmp_path, retries):
    with clock.use(clock.FakeClock()):
        decision, events = deliberate(tmp_path, Panel(safety=broken()), stream_retries=retries)
    assert decision.decision is Decision.FAILED_SAFE, "the reviewer with the veto did not vote"
    assert dict(decision.excluded) == {"safety": "consensus_stream_lost"}
    check(events)
    found = streams(events)["safety", "thinking", 0]
    assert [one["retrying"] for one in found if one["event"] == "stream.error"] == [True] * (retries + 1) + [False]


def test_an_answer_that_is_no_vote_is_void(tmp_path):
    decision, events = deliberate(tmp_path, Panel(safety=["I approve.", "A"]))
    assert decision.decision is Decision.APPROVED
    check(events)
    found = streams(events)["safety", "thinking", 0]
    assert "I approve." not in text_of(found)
    assert '"vote": "APPROVE"' in text_of(found)


def test_a_stream_ends_once_when_its_reviewer_fails(tmp_path):
    gone = Reply({"error": {"message": "no such model", "code": "model_not_found"}}, 404)
    slow = says("openai", "", [call("cast_vote", vote("A"))], before=60)
    decision, events = deliberate(tmp_path, Panel(correctness=gone, safety=gone, upkeep=slow))
    assert decision.decision is Decision.FAILED_SAFE
    check(events)
    ends = {name: one[-1]["reason"] for (name, *_), one in streams(events).items()}
    assert ends == {"correctness": "failed", "safety": "failed", "upkeep": "cancelled"}


# --- the emitter alone -----------------------------------------------------------------------------------------


def test_a_slow_consumer_gets_longer_tokens_and_every_end():
    events, go = [], threading.Event()

    def consume(event):
        go.wait(10)
        events.append(event)

    emitter = StreamingEmitter(consume)
    texts = {name: [f"{name}{number} " for number in range(500)] for name in ("a", "b")}
    for name, chunks in texts.items():
        with emitter.stream(name, "thinking") as stream:
            for chunk in chunks:
                stream.token(chunk)
    go.set()
    emitter.close()
    check(events)
    assert len(events) < 2 * WAITING + 10
    for name, chunks in texts.items():
        assert text_of(streams(events)[name, "thinking", 0]) == "".join(chunks)


def test_nothing_comes_after_the_end():
    events = []
    emitter = StreamingEmitter(events.append)
    with emitter.stream("a", "voting") as stream:
        stream.token("x")
        stream.end("done")
        stream.end("again")
        stream.token("late")
    stream.token("later")
    emitter.close()
    assert [one["event"] for one in events] == ["stream.token", "stream.end"]


def test_an_error_of_the_consumer_ends_the_output_alone(tmp_path):
    seen = []

    def consume(event):
        seen.append(event)
        raise BrokenPipeError

    with Script(Panel()) as server, panel_engine(tmp_path, settings_for(server.url), consumer=consume) as (engine, *_):
        assert engine.execute(ConsensusRequest(QUESTION)).decision is Decision.APPROVED
    assert len(seen) == 1


def test_a_stop_ends_each_stream_as_cancelled():
    events = []
    emitter = StreamingEmitter(events.append)

    def write():
        with emitter.stream("a", "thinking") as stream:
            stream.token("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    emitter.close()
    assert [one["event"] for one in events] == ["stream.token", "stream.error", "stream.end"]
    assert events[-1]["reason"] == "cancelled"

"""The turn with its real parts: store, window, toolbox, client; the model is HTTP on loopback and says what it is
told."""

import itertools
import json
import threading

import pytest
from llm_servers import Reply, Script, call, says

from agent import clock
from agent.config import settings_of
from agent.context import TaskContextManager
from agent.errors import ContextOverflow
from agent.llm import make_client
from agent.llm.replay import ReplayServer
from agent.llm.text_call_formats import MOST
from agent.loop import Loop
from agent.observe.events import Events
from agent.tools import STOPPED_BEFORE, Toolbox
from agent.tools.repetition import Repetition
from agent.values import End, FencedComment, Finished, Outcome
from agent.window import DoesNotFit, make_window
from agent.worker.control import TaskControl
from agent.worker.limits import TaskLimits

UUID = "0c000000-0000-4000-8000-000000000003"
KEY = {"task_source": "local", "owner": "local", "repo": "default", "task_type": "issue", "task_id": "3"}
IDS = itertools.count(1)


def does(name, **arguments):
    return says("openai", "", [call(name, arguments, f"call_{next(IDS)}")])


def both(*calls, **more):
    made = [call(name, arguments, f"call_{next(IDS)}") for name, arguments in calls]
    return says("openai", "", made, **more)


FINISH = {"title": "Done", "summary": "It is done."}


class Bench:
    """One task on loopback; `take_up` is what a new process would do with the same folder."""

    def __init__(self, folder):
        self.folder = folder
        self.open = []
        self.news = []
        self.looks = []
        self.said = []

    def start(self, *replies, limits=None, context_length=8192, url=None, requested=lambda: None, run=None):
        self.script = Script(*replies) if replies else None
        self.open.append(self.script) if self.script else None
        self.settings = settings_of(
            {
                "llm": {
                    "provider": "openai",
                    "openai": {
                        "model": "m",
                        "context_length": context_length,
                        "base_url": f"{url or self.script.url}/v1",
                        "api_key": "key-of-the-test",
                    },
                },
                "context_storage": {"base_dir": str(self.folder / "contexts"), "durability": "none"},
                "limits": limits or {},
            }
        )
        self.context = context = TaskContextManager(KEY, UUID, self.settings)
        self.open.append(context)
        store = context.get_message_store()
        tree = self.folder / "tree"
        tree.mkdir(exist_ok=True)
        events = Events([lambda name, fields: self.said.append((name, dict(fields)))])
        tools = Toolbox(
            root=tree,
            context_dir=context.context_dir,
            run=run,
            redact=str,
            clean=str,
            lookup=context.get_tool_store().result,
            settings=self.settings,
        )
        self.control = TaskControl(requested, lambda: None)
        client = make_client(
            self.settings, store, context.context_dir, tools=tools.schemas(), control=self.control, events=events
        )
        self.open.append(client)
        repetition = Repetition()
        if store.last_seq < 2:
            client.send_system_prompt("You are an agent.")
            store.add_message("user", "Do the task.", kind="task")
        else:
            tools.restore(context.get_tool_store().records())
            repetition.restore(context.get_tool_store().recent())

        def news(last):
            self.looks.append(last)
            taken, self.news[:] = [FencedComment(text) for text in self.news], []
            return taken

        self.loop = Loop(
            context=context,
            model=client,
            tools=tools,
            window=make_window(self.settings, context, client, tools, events),
            repetition=repetition,
            control=self.control,
            limits=TaskLimits(self.settings.limits, context.totals),
            new_comments=news,
            heartbeat=context.heartbeat,
            events=events,
        )
        return self.loop

    def leave(self):
        """The process is gone: descriptors closed, nothing ended."""
        for one in reversed(self.open):
            one.close()
        self.open = []

    def messages(self):
        return list(self.context.get_message_store().records())

    def results(self):
        return [one["content"] for one in self.messages() if one["role"] == "tool"]

    def calls(self):
        return list(self.context.get_tool_store().records())

    def named(self, name):
        return [fields for said, fields in self.said if said == name]


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.leave()


# --- answers ----------------------------------------------------------------------------------------------------


def test_a_finish_ends_the_run_with_its_title_and_summary(bench):
    outcome = bench.start(does("finish", **FINISH)).run()
    assert outcome == Outcome(End.FINISHED, summary="It is done.", title="Done", code=outcome.code)
    assert [one["role"] for one in bench.messages()] == ["system", "user", "assistant", "tool"]


def nudges(bench):
    return [one["content"] for one in bench.messages() if one.get("kind") == "nudge"]


@pytest.mark.parametrize(
    ("steps", "end", "code"),
    [
        ([says("openai", "Let me first look at a.py.")], End.FAILED, "no_tool_calls"),
        ([does("update_plan", items=[]), says("openai", "I will look at a.py.")], End.FAILED, "no_tool_calls"),
        ([does("write_file", path="a", content="x"), says("openai", "Now the second half.")], End.ANSWERED, ""),
        ([says("openai", "Half a sentence of", finish="content_filter")], End.FAILED, "answer_broken_off"),
        ([says("openai", "It is done.", finish="some_new_reason")], End.FAILED, "answer_broken_off"),
    ],
)
def test_text_without_a_call_gets_two_hints_and_is_never_a_finish(bench, steps, end, code):
    outcome = bench.start(*steps).run()
    assert (outcome.end, outcome.code) == (end, code)
    assert len(nudges(bench)) == 2
    assert len(bench.script.asked) == len(steps) + 2
    last = bench.messages()[-1]["content"]
    assert (last in outcome.summary) == (code != "answer_broken_off")


def test_the_hint_after_a_text_says_how_to_end(bench):
    outcome = bench.start(says("openai", "It works already."), does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED
    assert "call finish with the answer as its summary" in nudges(bench)[0]
    assert [fields["why"] for fields in bench.named("nudge")] == ["no_call"]


@pytest.mark.parametrize("reason", ["content_filter", "some_new_reason"])
def test_a_finish_in_an_answer_that_was_broken_off_does_not_end_the_run(bench, reason):
    cut = both(("write_file", {"path": "a.txt", "content": "x"}), ("finish", FINISH), finish=reason)
    outcome = bench.start(cut, does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED
    assert (bench.folder / "tree" / "a.txt").exists()
    assert f"broke it off ({reason})" in bench.results()[1]
    assert [one["status"] for one in bench.calls()] == ["success", "error", "success"]


def test_hints_are_counted_on_by_the_next_process(bench):
    said = says("openai", "Let me first look at a.py.")
    bench.start(said, limits={"turns": 2}).run()
    bench.leave()
    outcome = bench.start(said).run()
    assert outcome.code == "no_tool_calls"
    assert len(bench.script.asked) == 1
    bench.leave()
    assert (bench.start(said).run().code, bench.script.asked) == ("no_tool_calls", [])
    assert len(nudges(bench)) == 2


def test_an_unknown_tool_is_answered_with_the_known_ones(bench):
    outcome = bench.start(does("open_file", path="a"), does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED
    assert "open_file" in bench.results()[0]
    assert "read_file" in bench.results()[0]
    assert bench.calls()[0]["status"] == "error"


def test_broken_arguments_are_not_run_and_the_model_is_told_what_was_found(bench):
    broken = says("openai", "", [call("write_file", '{"path": "a.txt", "content": ', "call_b")])
    outcome = bench.start(broken, does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED
    assert "not a JSON object" in bench.results()[0]
    assert not (bench.folder / "tree" / "a.txt").exists()
    assert [one["tool"] for one in bench.calls()] == ["write_file", "finish"]


def test_parallel_calls_are_run_in_order_and_each_is_answered(bench):
    wanted = [("write_file", {"path": "a.txt", "content": "1"}), ("read_file", {"path": "a.txt"}), ("finish", FINISH)]
    outcome = bench.start(both(*wanted)).run()
    assert outcome.end is End.FINISHED
    assert [one["tool_name"] for one in bench.messages() if one["role"] == "tool"] == [name for name, _ in wanted]
    assert "1" in bench.results()[1]


def test_what_stands_behind_the_end_is_answered_and_not_run(bench):
    outcome = bench.start(both(("finish", FINISH), ("write_file", {"path": "late.txt", "content": "x"}))).run()
    assert outcome.end is End.FINISHED
    assert "had ended the run" in bench.results()[1]
    assert not (bench.folder / "tree" / "late.txt").exists()
    bench.leave()
    outcome = bench.start(says("openai", "What else?")).run()  # a new process finds the end too
    assert (outcome.end, bench.script.asked) == (End.FINISHED, [])


@pytest.mark.parametrize("reasoning", [False, True])
def test_an_answer_without_text_and_call_gets_a_word_and_the_third_ends_the_run(bench, reasoning):
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    delta = {"role": "assistant", "content": ""} | ({"reasoning_content": "Hm, hm."} if reasoning else {})
    lines = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    pieces = [b"data: " + json.dumps(line).encode() + b"\n\n" for line in lines] + [b"data: [DONE]\n\n"]
    outcome = bench.start(Reply(pieces, headers={"Content-Type": "text/event-stream"})).run()
    assert (outcome.end, outcome.code) == (End.FAILED, "no_answer")
    assert len(bench.script.asked) == 3
    assert [one["kind"] for one in bench.messages() if one.get("kind") == "nudge"] == ["nudge", "nudge"]
    assert "Hm, hm." not in json.dumps(bench.messages())


def test_the_word_after_an_empty_answer_helps(bench):
    outcome = bench.start(says("openai", ""), does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED
    assert "Your answer was empty" in bench.messages()[3]["content"]


def test_calls_of_an_answer_that_was_cut_are_not_run(bench):
    cut = both(("write_file", {"path": "a.txt", "content": "half"}), finish="length")
    outcome = bench.start(cut, does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED
    assert not (bench.folder / "tree" / "a.txt").exists()
    assert "cut off" in bench.results()[0]
    assert bench.calls()[0]["status"] == "error"


def test_three_cut_answers_end_the_run(bench):
    outcome = bench.start(lambda _: both(("read_file", {"path": f"a{next(IDS)}"}), finish="length")).run()
    assert (outcome.end, outcome.code) == (End.FAILED, "answer_cut")
    assert len(bench.script.asked) == 3


def test_a_cut_text_is_no_answer(bench):
    outcome = bench.start(says("openai", "It is", finish="length"), does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED
    assert "cut off" in bench.messages()[3]["content"]


# --- going in circles -------------------------------------------------------------------------------------------


def test_the_same_call_three_times_gets_a_word_and_once_more_ends_the_run(bench):
    outcome = bench.start(lambda _: does("read_file", path="gone.txt")).run()
    assert (outcome.end, outcome.code) == (End.REPEATING, "repeating")
    assert len(bench.named("nudge")) == 1
    assert len(bench.script.asked) == 4
    assert "same result three times" in [one["content"] for one in bench.messages() if one["role"] == "user"][1]


def test_two_calls_in_turn_are_a_circle_too(bench):
    turn = itertools.count()
    outcome = bench.start(lambda _: does("read_file", path="ab"[next(turn) % 2])).run()
    assert outcome.end is End.REPEATING
    assert len(bench.script.asked) <= 8


def test_polling_with_changing_results_is_no_circle(bench):
    states = itertools.count(1)

    def run(command, timeout, spool):
        return Finished(0, b"state %d\n" % next(states), 0.01)

    replies = [does("run_command", command="status") for _ in range(6)]
    outcome = bench.start(*replies, does("finish", **FINISH), run=run).run()
    assert outcome.end is End.FINISHED
    assert bench.named("nudge") == []


def test_a_circle_is_remembered_by_the_next_process(bench):
    replies = [does("read_file", path="gone.txt") for _ in range(3)]
    bench.start(*replies, limits={"turns": 3}).run()
    assert len(bench.named("nudge")) == 1
    bench.leave()
    outcome = bench.start(does("read_file", path="gone.txt")).run()
    assert outcome.end is End.REPEATING


# --- stops and limits -------------------------------------------------------------------------------------------


def test_a_stop_while_the_model_thinks_appends_nothing(bench):
    asked = threading.Event()

    def slow(request):
        asked.set()
        return says("openai", "Too late.", before=20.0)

    outcome = bench.start(slow, requested=lambda: "stop" if asked.is_set() else None).run()
    assert outcome.end is End.STOPPED
    assert [one["role"] for one in bench.messages()] == ["system", "user"]
    assert not (bench.context.context_dir / "request.json").exists()


def test_a_drain_ends_before_the_next_turn(bench):
    loop = bench.start(lambda _: bench.control.drain() or does("read_file", path="a"))
    assert loop.run().end is End.DRAINED
    assert len(bench.script.asked) == 1
    assert bench.messages()[-1]["role"] == "tool"


@pytest.mark.parametrize(("key", "value", "turns"), [("turns", 2, 2), ("tokens", 300, 3)])
def test_a_limit_ends_the_run_and_names_its_key(bench, key, value, turns):
    numbers = itertools.count()
    outcome = bench.start(lambda _: does("read_file", path=str(next(numbers))), limits={key: value}).run()
    assert (outcome.end, outcome.code) == (End.LIMIT, f"limit_{key}")
    assert f"limits.{key}" in outcome.summary
    assert len(bench.script.asked) == turns


def slow(seconds):
    """A command that takes so long, of a clock that the test moves."""
    ran = []

    def run(command, _timeout, _spool):
        ran.append(command)
        time.move(seconds)
        return Finished(0, b"done", seconds)

    time = clock.FakeClock()
    return time, ran, run


def test_a_limit_of_time_is_looked_at_between_the_calls_of_one_answer(bench):
    time, ran, run = slow(3)
    with clock.use(time):
        calls = [("run_command", {"command": f"sleep {number}"}) for number in range(20)]
        outcome = bench.start(both(*calls), limits={"wall_seconds": 8}, run=run).run()
    assert (outcome.end, outcome.code) == (End.LIMIT, "limit_wall_seconds")
    assert len(ran) == 3
    results = [one["content"] for one in bench.messages() if one["role"] == "tool"]
    assert results[3:] == [STOPPED_BEFORE] * 17
    assert len(results) == 20  # the conversation stays legal: every call has its result


def test_a_stop_is_heard_between_the_calls_of_one_answer(bench):
    asked = []
    time, ran, run = slow(5)
    with clock.use(time):
        calls = [("run_command", {"command": f"sleep {number}"}) for number in range(5)]
        loop = bench.start(both(*calls), run=run, requested=lambda: "stop" if len(ran) > 1 else asked.append(1))
        outcome = loop.run()
    assert outcome.end is End.STOPPED
    assert len(ran) == 2


def test_the_last_turn_that_a_limit_of_turns_allows_is_carried_out_whole(bench):
    time, ran, run = slow(1)
    with clock.use(time):
        calls = [("run_command", {"command": f"sleep {number}"}) for number in range(3)]
        outcome = bench.start(both(*calls, ("finish", FINISH)), limits={"turns": 1, "tokens": 10}, run=run).run()
    assert outcome.end is End.FINISHED
    assert len(ran) == 3


def test_a_run_that_goes_on_after_a_limit_between_calls_asks_the_model_again(bench):
    time, _, run = slow(9)
    with clock.use(time):
        bench.start(both(*[("run_command", {"command": "a"})] * 2), limits={"wall_seconds": 8}, run=run).run()
        bench.leave()
        outcome = bench.start(does("finish", **FINISH), limits={"wall_seconds": 8}, run=run).run()
    assert outcome.end is End.FINISHED
    assert bench.script.asked[0].json["messages"][-1]["content"] == STOPPED_BEFORE


def test_more_calls_than_an_answer_may_have_are_not_kept_and_the_model_is_told(bench):
    _, ran, run = slow(0)
    calls = [("run_command", {"command": f"echo {number}"}) for number in range(2 * MOST)]
    outcome = bench.start(both(*calls), does("finish", **FINISH), run=run).run()
    assert outcome.end is End.FINISHED
    assert ran == [f"echo {number}" for number in range(MOST)]
    messages = bench.script.asked[1].json["messages"]
    assert len(next(one for one in messages if one["role"] == "assistant")["tool_calls"]) == MOST
    assert f"{2 * MOST} tool calls. The first {MOST} have" in messages[-1]["content"]
    assert [fields["calls"] for name, fields in bench.said if name == "calls_dropped"] == [2 * MOST]


def test_a_limit_counts_what_earlier_processes_used(bench):
    numbers = itertools.count()
    bench.start(lambda _: does("read_file", path=str(next(numbers))), limits={"turns": 2}).run()
    bench.leave()
    outcome = bench.start(does("finish", **FINISH), limits={"turns": 2}).run()
    assert outcome.end is End.LIMIT
    assert bench.script.asked == []


# --- the window -------------------------------------------------------------------------------------------------


def too_long(request):
    """The server's window is half of what was sent."""
    sent = len(request.body) // 4
    text = (
        f"This model's maximum context length is {sent // 2} tokens. However, your messages resulted in {sent} tokens."
    )
    return Reply({"error": {"message": text, "code": "context_length_exceeded"}}, 400)


def counting(name, **arguments):
    """A call whose answer reports about as many tokens as were sent."""
    made = call(name, arguments, f"call_{next(IDS)}")
    return lambda request: says("openai", "", [made], usage=(len(request.body) // 4, 20))


def fill(bench, words=100, turns=12):
    for number in range(turns):
        (bench.folder / "tree").mkdir(exist_ok=True)
        (bench.folder / "tree" / f"f{number}.txt").write_text(f"line {number} of some words\n" * words)
    return [counting("read_file", path=f"f{number}.txt") for number in range(turns)]


def test_too_long_is_compacted_once_and_asked_again(bench):
    replies = [*fill(bench), too_long, does("finish", **FINISH)]
    outcome = bench.start(*replies, context_length=64000).run()
    assert outcome.end is End.FINISHED
    assert len(bench.named("compaction")) == 1
    assert len(bench.script.asked[-1].body) < len(bench.script.asked[-2].body)


def test_too_long_for_ever_is_an_error_that_says_so(bench):
    replies = [*fill(bench), too_long]
    loop = bench.start(*replies, context_length=64000)
    with pytest.raises((ContextOverflow, DoesNotFit)):
        loop.run()
    assert len(bench.script.asked) <= len(replies) + 2


def test_past_the_mark_the_view_is_compacted_before_the_next_turn(bench):
    replies = fill(bench)
    outcome = bench.start(*replies, does("finish", **FINISH), context_length=9000).run()
    assert outcome.end is End.FINISHED
    assert bench.named("compaction")
    assert [one["seq"] for one in bench.messages()] == list(range(1, len(bench.messages()) + 1))


# --- people -----------------------------------------------------------------------------------------------------


def test_a_comment_is_heard_before_the_next_turn(bench):
    def first(_):
        bench.news.append("Please in blue.")
        return does("read_file", path="a")

    bench.start(first, does("finish", **FINISH)).run()
    assert bench.script.asked[1].json["messages"][-1] == {"role": "user", "content": "Please in blue."}
    assert [one["content"] for one in bench.messages() if one.get("kind") == "comment"] == ["Please in blue."]


def test_a_comment_that_comes_while_the_model_ends_is_heard_before_the_end(bench):
    def ending(_):
        bench.news.append("And greet Hanako.")
        return does("finish", **FINISH)

    loop = bench.start(ending, does("read_file", path="a.txt"), does("finish", **FINISH))
    assert loop.run().end is End.FINISHED
    assert len(bench.script.asked) == 3
    assert "And greet Hanako." in [one["content"] for one in bench.messages() if one["role"] == "user"]
    assert bench.looks.count(True) == 2  # at both ends, whatever the time


def test_an_end_that_is_no_success_looks_for_no_more_comments(bench):
    loop = bench.start(does("ask_user", question="Red or blue?"))
    assert loop.run().end is End.ASKED
    assert True not in bench.looks


def test_at_a_limit_the_end_stands_and_nothing_is_heard_that_could_not_be_answered(bench):
    def ending(_):
        bench.news.append("One more thing.")
        return does("finish", **FINISH)

    assert bench.start(ending, limits={"turns": 1}).run().end is End.FINISHED
    assert bench.news == ["One more thing."]


def test_a_question_that_was_answered_is_not_asked_again(bench):
    assert bench.start(does("ask_user", question="Which one?")).run().end is End.ASKED
    bench.leave()
    bench.news = ["The first."]
    outcome = bench.start(does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED
    assert [one["content"] for one in bench.messages() if one.get("kind") == "comment"] == ["The first."]


def test_a_question_without_an_answer_is_still_open(bench):
    bench.start(does("ask_user", question="Which one?")).run()
    bench.leave()
    outcome = bench.start(does("finish", **FINISH)).run()
    assert (outcome.end, outcome.summary) == (End.ASKED, "Which one?")
    assert bench.script.asked == []


# --- a new process ----------------------------------------------------------------------------------------------


def test_a_finish_that_was_recorded_is_not_asked_for_again(bench):
    bench.start(does("finish", **FINISH)).run()
    bench.leave()
    outcome = bench.start(says("openai", "What else?")).run()
    assert (outcome.end, outcome.title) == (End.FINISHED, "Done")
    assert bench.script.asked == []


def test_an_answer_that_ended_the_run_is_not_asked_for_again(bench):
    bench.start(does("write_file", path="a", content="x"), says("openai", "All is well.")).run()
    bench.leave()
    outcome = bench.start(says("openai", "What else?")).run()
    assert (outcome.end, outcome.summary) == (End.ANSWERED, "All is well.")
    assert bench.script.asked == []


def test_whether_the_newest_message_is_the_end_can_be_asked_without_adding_one(bench):
    """Whoever takes a task over says so in the conversation, unless that has ended."""
    loop = bench.start(does("write_file", path="a", content="x"), *[says("openai", "All is well.")] * 3)
    loop.run_turn()
    ends = []
    for _ in range(3):
        loop.query()
        before = bench.messages()
        ends.append(loop.recorded_outcome())
        assert bench.messages() == before
        ends[-1] = ends[-1] or loop.resume_outcome()
    assert [end and end.end for end in ends] == [None, None, End.ANSWERED]


def test_a_call_that_was_interrupted_behind_an_end_is_none(bench):
    bench.start(does("ask_user", question="Which?")).run()
    bench.leave()
    bench.news = ["This one."]
    loop = bench.start(does("write_file", path="a.txt", content="1"))
    assert loop.recorded_outcome().end is End.ASKED
    loop.take_comments()
    loop.query()
    bench.leave()
    assert bench.start(says("openai", "Go on.")).recorded_outcome() is None


def test_a_result_that_only_tools_jsonl_has_is_taken_from_there(bench):
    """Killed between the two appends: the finish counts, and the model is not asked again."""
    loop = bench.start(does("finish", **FINISH))
    _, calls = loop.query()
    bench.context.get_tool_store().add_tool_call("finish", calls[0]["arguments"], "[finished]", "success", 1)
    bench.leave()
    outcome = bench.start(says("openai", "What else?")).run()
    assert (outcome.end, outcome.title) == (End.FINISHED, "Done")
    assert bench.messages()[-1]["content"] == "[finished]"
    assert bench.messages()[-1]["tool_seq"] == 1
    assert bench.script.asked == []


def test_a_call_without_a_result_is_answered_as_interrupted_and_the_work_goes_on(bench):
    loop = bench.start(does("ask_user", question="Which?"))
    loop.run()
    bench.leave()
    bench.news = ["This one."]
    loop = bench.start(does("write_file", path="a.txt", content="1"))
    loop.take_comments()
    loop.query()  # killed here: the call is on disk, nothing was run
    bench.leave()
    outcome = bench.start(does("finish", **FINISH)).run()
    assert outcome.end is End.FINISHED  # and not ASKED, although the newest line of tools.jsonl is the old question
    assert any("interrupted, outcome unknown" in one for one in bench.results())
    assert not (bench.folder / "tree" / "a.txt").exists()


def test_the_plan_is_there_after_many_calls_and_a_restart(bench):
    plan = {"items": [{"text": "find", "status": "done"}, {"text": "mend", "status": "in_progress"}]}
    replies = [both(("update_plan", plan))] + [
        both(*[("read_file", {"path": f"{turn}-{number}"}) for number in range(20)]) for turn in range(3)
    ]
    bench.start(*replies, limits={"turns": 4}).run()
    bench.leave()
    loop = bench.start(does("finish", **FINISH))
    assert loop.tools.plan() == plan["items"]


def test_a_recorded_conversation_drives_the_same_loop(bench, tmp_path):
    function = {"name": "finish", "arguments": json.dumps(FINISH)}
    record = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    lines = [{"role": "system", "content": "s"}, {"role": "user", "content": "t"}, record]
    path = tmp_path / "recorded.jsonl"
    path.write_text("".join(json.dumps({"seq": seq, **line}) + "\n" for seq, line in enumerate(lines, 1)))
    with ReplayServer(path) as server:
        outcome = bench.start(url=server.url).run()
    assert (outcome.end, outcome.title) == (End.FINISHED, "Done")

"""What a compaction takes away, what it keeps, and what it never records (cases.md)."""

import tracemalloc

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from length import either
from summaries import honest, words_asked
from summaries import records as sent

from agent.errors import (
    AnswerUnreadable,
    ConfigError,
    ContextOverflow,
    ModelStalled,
    ModelUnreachable,
    RequestTooLarge,
)
from agent.llm import Interrupted
from agent.observe.events import LEVELS
from agent.plugin_guard import PluginGuard
from agent.values import End, Outcome, Usage
from agent.window import CompactionStuck, DoesNotFit
from agent.window.summary_request import FILES
from agent.window.summary_writer import marked

GOOD = honest
FIXED = "## 1. Changes\n" + "\n".join(
    f"- fcall_{number}.py was read from its beginning to its end" for number in range(12)
)


def legal(task):
    """Every compaction must leave a list that the planner takes."""
    return task.view()


def test_nothing_happens_below_the_mark(new_task):
    task = new_task().begin().fill(3)
    assert not task.compressor.should_compress()
    before = task.current()
    assert task.compressor.compress() is None
    assert task.current() == before
    assert task.writer.requests == []


def test_past_the_mark_a_summary_stands_for_the_oldest_groups(new_task):
    task = new_task(GOOD, strategy="summary").begin().fill(14)
    assert task.compressor.should_compress()
    identifier = task.compressor.compress()
    assert identifier == task.store.summaries.get_latest_summary()["id"] == 1
    view = legal(task)
    assert [message["role"] for message in view[:4]] == ["system", "user", "assistant", "user"]
    assert view[2]["content"] == marked(honest(task.writer.requests[0]))
    assert not task.compressor.should_compress()
    assert not [name for name in FILES if (task.folder / name).exists()]
    [event] = task.events("compaction")
    assert event["strategy"] == "summary"
    assert event["tokens_after"] < event["tokens_before"]


def test_the_five_files_of_the_seed_exist_while_the_summary_is_asked_for(new_task):
    seen = {}

    def look(_text):
        for name in FILES:
            seen.setdefault(name, (task.folder / name).read_bytes())

    task = new_task(GOOD, room=look, strategy="summary").begin().fill(14)
    kept = task.store.last_seq
    task.compressor.compress()
    lines = seen["unsummarized.jsonl"].splitlines()
    assert len(lines) >= 5
    assert orjson.loads(lines[-1])["tool_call_id"] == f"call_{task.calls}"
    assert seen["to_summarize.jsonl"].count(b"\n") + len(lines) + 2 == kept
    first, *records, last = seen["formatted_messages.txt"].splitlines()
    assert first.startswith(b"<<<UNTRUSTED ")
    assert last.startswith(b"<<<END UNTRUSTED ")
    calls = [{"name": "read_file", "arguments": {"path": "fcall_1.py"}}]
    assert orjson.loads(records[1]) == {"role": "assistant", "content": "Step 1.", "calls": calls}
    assert b"=== Messages to summarise ===" in seen["summary_request.txt"]
    assert b"{messages}" in seen["summary_prompt.txt"]
    assert b"{messages}" not in seen["summary_request.txt"]


def test_masking_comes_first_and_may_be_enough(new_task):
    task = new_task(GOOD).begin().fill(14)
    assert task.compressor.compress() is None
    assert task.writer.requests == []
    view = legal(task)
    pointers = [message for message in view if "read_output" in (message["content"] or "")]
    assert pointers
    assert all(message["role"] == "tool" for message in pointers)
    assert len(view) == task.store.last_seq
    assert "read_output" not in view[-1]["content"]
    assert not task.compressor.should_compress()


def test_hybrid_summarises_when_masks_give_no_more(new_task):
    task = new_task(GOOD, context_length=4096).begin()
    for _ in range(40):
        task.group(200)
        if task.compressor.should_compress():
            task.compressor.compress()
    kinds = {fields["strategy"] for fields in task.events("compaction")}
    assert kinds == {"mask", "summary"}
    legal(task)


def test_a_compaction_of_few_messages_is_not_worth_a_summary(new_task):
    task = new_task(GOOD, strategy="summary", context_length=32768).begin().fill_to_mark(2900)
    assert task.compressor.compress() is None
    assert task.writer.requests == []
    assert task.compressor.compress() is None
    assert task.compressor.compress() is None


def test_few_messages_that_do_not_fit_are_summarised_all_the_same(new_task):
    task = new_task(GOOD, strategy="summary").begin().fill(4, 1900)
    assert task.compressor.compress() == 1
    assert task.window.plan().tokens <= task.window.limits.input_limit


def test_the_seeds_four_arguments_are_enough(new_task):
    from agent.window import ContextCompressor

    task = new_task(strategy="summary").begin().fill(14)
    config = {
        "context_storage": {"strategy": "summary", "keep_recent_messages": 3},
        "llm": {"provider": "ollama", "ollama": {"model": "phi4", "context_length": 8192}},
    }

    class OnlySummaries:
        def get_summary(self, path):
            return GOOD(path.read_text())

    compressor = ContextCompressor(task.store, task.store.summaries, OnlySummaries(), config)
    assert compressor.keep_recent_messages == 3
    assert compressor.should_compress()
    assert compressor.compress() == 1
    assert len(legal(task)) >= 4 + 4


def test_a_plain_conversation_without_a_system_prompt_is_compacted_as_in_the_seed(new_task):
    task = new_task(GOOD)
    for number in range(20):
        task.store.add_message("user", f"Question {number}: part{number}.py?\n" + "why is it so? " * 40)
        task.store.add_message("assistant", f"Answer {number}: test_{number}.\n" + "because of this. " * 40)
    assert task.compressor.should_compress()
    assert task.compressor.compress() == 1
    view = [orjson.loads(line) for line in task.current().splitlines()]
    assert view[0]["content"].startswith("Question 0")
    assert view[1] == {"role": "assistant", "content": marked(honest(task.writer.requests[-1]))}
    assert [message["content"].split(":")[0] for message in view[-5:]] == [
        "Answer 17", "Question 18", "Answer 18", "Question 19", "Answer 19"]  # fmt: skip


def test_the_request_file_is_made_as_the_seed_says(new_task, tmp_path):
    task = new_task().begin()
    (tmp_path / "p.txt").write_text("Summarise.")
    (tmp_path / "t.jsonl").write_bytes(
        orjson.dumps({"role": "user", "content": "Hi {messages}"})
        + b"\n"
        + orjson.dumps({"role": "tool", "tool_call_id": "x", "content": "out"})
        + b"\n"
    )
    out = task.compressor.create_summary_request_file(
        tmp_path / "p.txt", tmp_path / "t.jsonl", tmp_path / "u.jsonl", tmp_path / "out.txt"
    )
    assert out.read_text() == "Summarise.\n\n[USER]: Hi {messages}\n[TOOL]: out\n\n"
    (tmp_path / "p.txt").write_text("Before\n{messages}\nAfter {messages}")
    names = [str(tmp_path / name) for name in ("p.txt", "t.jsonl", "u.jsonl", "out.txt")]  # as strings
    task.compressor.create_summary_request_file(*names)
    assert out.read_text() == "Before\n[USER]: Hi {messages}\n[TOOL]: out\n\nAfter {messages}"


# --- cases.md ----------------------------------------------------------------------------------------------------


class Strange:
    """A strategy of a plug-in that names a means which does not exist."""

    def steps(self):
        return ("mask", "forget")


def test_a_strategy_of_a_plug_in_that_names_an_unknown_means_is_an_error_of_the_configuration(
    new_task, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # the folder of the configuration, and so of the pins
    PluginGuard(tmp_path).pin([f"{__name__}:Strange"])
    task = new_task(strategy=f"{__name__}:Strange").begin().fill(14)
    with pytest.raises(ConfigError, match=r"context_storage\.strategy: Strange .* 'forget'; allowed are mask, summary"):
        task.compressor.compress(force=True)


def test_case_1_a_cut_never_separates_results_from_their_call(new_task):
    task = new_task(GOOD, strategy="summary", keep_recent_messages=6).begin().fill(12).group(100, calls=10)
    task.compressor.compress()
    view = legal(task)
    assert [message["role"] for message in view[4:]] == ["assistant"] + ["tool"] * 10


def test_case_2_a_loop_with_one_user_message_reaches_the_summariser_with_its_text(new_task):
    task = new_task(GOOD, strategy="summary", context_length=32768).begin()
    for number in range(30):
        task.group(800, path=f"part{number}.py")
    task.compressor.compress(force=True)
    text = "".join(task.writer.requests)
    [compaction] = task.store.compactions.all()
    assert compaction["end_seq"] >= 20
    assert all(f"part{number}.py" in text for number in range((compaction["end_seq"] - 2) // 2))


@pytest.mark.parametrize("error", [ModelStalled("the stream was cut"), ModelUnreachable("no route to host")])
def test_case_3_a_summariser_that_fails_leaves_everything_as_it_was(new_task, error):
    task = new_task(error, strategy="summary").begin().fill_to_mark()
    before = task.current(), task.store.last_seq
    assert task.compressor.compress() is None
    assert (task.current(), task.store.last_seq) == before
    assert task.store.summaries.count_summaries() == 0
    assert not [name for name in FILES if (task.folder / name).exists()]
    assert "summary" in [fields["strategy"] for fields in task.events("compaction_failed")]


def test_a_summariser_that_stays_away_is_done_without(new_task):
    task = new_task(ModelUnreachable("no route to host"), strategy="summary").begin().fill_to_mark()
    assert task.compressor.compress() is None
    assert task.events("compaction") == []
    assert not task.compressor.should_compress()
    assert task.compressor.compress() is None
    assert [fields["strategy"] for fields in task.events("compaction")] == ["window"]
    legal(task)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "   \n",
        "...",
        "Error code: 429 - rate limit reached",
        "I'm sorry, but I can't help with that.",
        '{"error": {"message": "overloaded"}}',
        "<html><body>502 Bad Gateway</body></html>",
        "(no summary available)",
        "Previous conversation was too long to summarize.",
        "<think>Let me see what they did here.</think>",
        lambda text: text * 2,
        AnswerUnreadable("the summary was cut at the limit of the answer"),
    ],
)
def test_what_is_no_summary_is_never_recorded_and_the_next_means_is_used(new_task, bad):
    task = new_task(bad, strategy="summary").begin().fill(14)
    assert task.compressor.compress() is None
    assert task.store.summaries.count_summaries() == 0
    assert [fields["strategy"] for fields in task.events("compaction")] == ["window"]
    assert legal(task)[0]["role"] == "system"


def test_thoughts_of_a_reasoning_model_are_not_part_of_the_summary(new_task):
    task = new_task(lambda text: f"<think>First I read.</think>\n\n{honest(text)}", strategy="summary").begin().fill(14)
    task.compressor.compress()
    assert task.store.summaries.get_latest_summary()["summary"] == marked(honest(task.writer.requests[0]))


def test_a_briefing_that_was_damaged_meanwhile_is_not_replaced_by_the_next_message(new_task):
    task = new_task(strategy="summary").begin(task="Fix the bug.").heard()
    task.group(100, text="Nothing is to be fixed.")
    task.fill_to_mark()
    path = task.folder / "messages.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"seq":2', b'!"seq":2', 1))
    assert task.store.briefing() is None
    task.window.compact()
    assert task.writer.requests[0].count("Nothing is to be fixed.") == 1


def test_case_5_every_call_is_answered_once_after_a_summary(new_task):
    task = new_task(GOOD, strategy="summary").begin()
    for _ in range(3):
        task.fill(14)
        task.compressor.compress()
    view = legal(task)
    answered = [message["tool_call_id"] for message in view if message["role"] == "tool"]
    assert len(answered) == len(set(answered))


def test_case_6_only_role_content_and_calls_are_in_the_request(new_task):
    task = new_task(GOOD, strategy="summary").begin().fill(14)
    task.store.add_message("assistant", "Seen.", usage=Usage(3000, 10), finish_reason="stop")
    task.store.add_message("user", "Go on.")
    task.compressor.compress(force=True)
    for word in ("timestamp", "tokens", "seq", "usage", "finish_reason", "tool_call_id", "call_1"):
        assert word not in task.writer.requests[0].split("=== Messages")[1].replace("fcall_", "f_")


def test_case_7_results_at_the_end_are_counted_and_stay_with_their_call(new_task):
    task = new_task(GOOD, strategy="sliding_window", keep_recent_messages=1).begin().fill(10).group(300, calls=5)
    task.compressor.compress()
    view = legal(task)
    assert [message["role"] for message in view[-6:]] == ["assistant"] + ["tool"] * 5
    assert not task.compressor.should_compress()


def test_case_8_what_fits_is_sent_as_it_is(new_task):
    task = new_task().begin().fill(5)
    plan = task.window.plan()
    [span] = plan.spans
    assert (span.start, span.end) == (0, len(task.current()))
    assert not plan.metadata["needs_compaction"]


@pytest.mark.parametrize("strategy", ["hybrid", "summary", "sliding_window", "mask"])
def test_case_12_the_kept_part_never_begins_with_a_result(new_task, strategy):
    task = new_task(GOOD, strategy=strategy, keep_recent_messages=1).begin()
    for _ in range(24):
        task.group(500, calls=2)
        if task.compressor.should_compress():
            task.compressor.compress()
        legal(task)
    assert len(task.events("compaction")) > 1


def test_case_13_two_compactions_without_progress_end_in_an_error(new_task):
    task = new_task(GOOD).begin(task="word " * 5200)
    task.group(100)
    assert task.compressor.should_compress()
    assert task.compressor.compress(force=True) is None
    with pytest.raises(CompactionStuck, match=r"Two compactions in a row.*larger window"):
        task.compressor.compress(force=True)
    assert CompactionStuck.code == "compaction_stuck"
    assert len(task.events("compaction_exhausted")) == 2


@pytest.mark.parametrize("name", ["mask", "window"])
def test_a_means_that_does_not_help_is_no_warning_while_the_next_one_does(new_task, monkeypatch, name):
    task = new_task(GOOD).begin().fill_to_mark()
    means = task.compressor._means()
    failing = {name: lambda _need: task.compressor._emit_failure(name, "it frees too little")}
    monkeypatch.setattr(task.compressor, "_means", lambda: means | failing)
    monkeypatch.setattr(task.compressor, "_order", lambda: (name, "reset"))
    task.compressor.compress(force=True)
    assert [one["strategy"] for one in task.events("compaction_failed")] == [name]
    assert [one["strategy"] for one in task.events("compaction")] == ["reset"]
    assert not task.events("compaction_exhausted")
    assert "compaction_failed" not in LEVELS, "it is told as info"


def test_what_cannot_be_made_smaller_and_fits_goes_on_without_asking_again_and_again(new_task):
    task = new_task(lambda text: text * 2, strategy="summary", min_messages_to_summarize=1)
    task.heard().begin_large(5440).group(60).group(60)
    assert task.compressor.should_compress()
    for _ in range(3):
        assert task.compressor.compress() is None
    assert not task.compressor.should_compress()
    task.window.plan()
    asked = len(task.writer.requests)
    task.group(300)
    assert task.compressor.should_compress()
    assert len(task.writer.requests) == asked


def test_less_than_a_tenth_is_enough_when_it_makes_the_request_fit(new_task):
    task = new_task(GOOD, strategy="sliding_window").begin_large(5230).group(150).group(150).group(150)
    assert task.window.assembler.plan().metadata["needs_compaction"]
    assert task.window.plan().tokens <= task.window.limits.input_limit


@pytest.mark.parametrize("strategy", ["summary", "sliding_window"])
def test_the_last_reset_carries_all_where_the_request_then_fits(new_task, strategy):
    task = new_task("", strategy=strategy).begin().heard()
    for number in range(10):
        task.store.add_message("user", f"Rule {number}: " + "mind this too. " * 15, kind="comment")
    task.fill(2)
    end = task.store.last_seq
    task.store.compact(strategy="window", end_seq=end, carried=task.compressor._carried(end))
    said = len(task.store.compactions.last()["carried"]["comments"])
    task.group(250)
    limit, line = task.window.limits.input_limit, task.store.plain.count("line 0 of the file\n" * 100) / 100
    task.group(int((limit - task.window.assembler.tokens_in_use() + 60) / line) * 6)
    assert task.window.assembler.tokens_in_use() > limit
    task.compressor.reset()
    newest = task.store.compactions.last()
    assert (newest["strategy"], len(newest["carried"]["comments"])) == ("reset", said)
    assert task.window.assembler.tokens_in_use() <= limit


def test_case_15_the_plan_survives_word_for_word(new_task):
    task = new_task(GOOD, strategy="summary").begin()
    items = [{"text": "Read the parser", "status": "done"}, {"text": "Fix the empty list", "status": "in_progress"}]
    task.group(50, name="update_plan", items=items)
    for _ in range(3):
        task.fill(14)
        task.compressor.compress()
        carried = legal(task)[3]["content"]
        assert "[done] Read the parser" in carried
        assert "[in_progress] Fix the empty list" in carried


@pytest.mark.parametrize("number", [16, 17])
def test_case_16_and_17_a_summary_request_that_is_too_long_is_made_smaller(new_task, number):
    limit = 1700 if number == 16 else 1450

    def room(text):
        tokens = len(text) // 6
        if tokens > limit:
            raise ContextOverflow("prompt is too long", status=400, limit=limit, requested=tokens)

    task = new_task(GOOD, room=room, strategy="summary").begin().fill(14)
    assert task.compressor.compress() == 1
    assert len(task.writer.requests) > 1
    assert any("summary_so_far" in record for text in task.writer.requests[1:] for record in sent(text))
    legal(task)


def test_case_17_a_summariser_that_takes_nothing_is_followed_by_leaving_the_oldest_out(new_task):
    task = new_task(RequestTooLarge("Limit 100, Requested 3000", status=429, limit=100), strategy="summary")
    task.begin().fill(14)
    assert task.compressor.compress() is None
    assert [fields["strategy"] for fields in task.events("compaction")] == ["window"]
    assert len(task.writer.requests) <= 5
    assert not task.compressor.should_compress()


@pytest.mark.parametrize("strategy", ["hybrid", "summary", "sliding_window", "mask"])
def test_case_18_the_task_and_its_rules_stay_word_for_word(new_task, strategy):
    task = new_task(GOOD, strategy=strategy).begin()
    while len(task.events("compaction")) < 3:
        task.fill(4)
        if task.compressor.should_compress():
            task.compressor.compress()
    view = legal(task)
    assert view[0]["content"] == "You are a careful agent."
    assert view[1] == {"role": "user", "content": "Fix the bug in main.py. RULE: never touch setup.py."}


def test_case_20_a_report_from_before_the_compaction_counts_no_more(new_task):
    task = new_task(GOOD).begin().fill(14)
    task.store.add_message("assistant", "Seen.", usage=Usage(7000, 20))
    task.store.add_message("user", "Go on.")
    assert task.window.needs_compaction()
    assert task.window.compact()
    assert not task.window.needs_compaction()
    assert task.window.assembler.tokens_in_use() < 5000


def test_case_25_strategies_without_a_model_ask_none(new_task):
    for strategy in ("sliding_window", "mask"):
        task = new_task(GOOD, strategy=strategy).begin()
        for _ in range(25):
            task.group(500)
            if task.compressor.should_compress():
                task.compressor.compress()
        task.window.compact(ContextOverflow("too long"))  # and a server's word changes nothing of it
        task.group(100)
        task.window.compact(ContextOverflow("too long"))
        assert task.writer.requests == []
        assert task.store.summaries.count_summaries() == 0
        assert task.events("compaction")


def test_case_35_a_user_message_is_always_left(new_task):
    task = new_task(GOOD, strategy="sliding_window").begin().fill(40)
    task.compressor.compress()
    assert [message["role"] for message in legal(task)].count("user") >= 1


def test_case_52_a_first_message_larger_than_the_summarisers_window_is_cut_not_lost(new_task):
    task = new_task(GOOD, strategy="summary").begin()
    task.group(9000, path="giant.py")
    task.fill(6)
    assert task.compressor.compress() == 1
    text = "".join(task.writer.requests)
    assert "giant.py" in text
    assert "characters left out" in text
    assert all(f"fcall_{number}.py" in text for number in range(2, 5))


# --- more rules ----------------------------------------------------------------------------------------------------


def test_the_newest_words_of_a_person_are_carried_verbatim(new_task):
    task = new_task(GOOD, strategy="summary").begin().fill(3)
    task.store.add_message("user", "Please keep Python 3.9 working — 互換性が必要です。", kind="comment")
    task.fill(12)
    task.compressor.compress()
    assert "Please keep Python 3.9 working — 互換性が必要です。" in legal(task)[3]["content"]


def test_an_open_question_is_carried_until_it_is_answered(new_task):
    task = new_task(GOOD, strategy="summary").begin()
    task.group(50, name="ask_user", question="Which branch?").fill(14)
    task.compressor.compress()
    assert "Open question:\nWhich branch?" in legal(task)[3]["content"]
    task.store.add_message("user", "The main branch.", kind="comment")
    task.fill(14)
    task.compressor.compress()
    assert "Open question" not in legal(task)[3]["content"]
    pair = "your question]\n> Which branch?\n\n[message 34, the answer]\nThe main branch."
    assert pair in legal(task)[3]["content"]


def test_files_are_told_from_tools_that_succeeded(new_task):
    task = new_task(GOOD, strategy="summary").begin().fill(14)
    records = [
        {"seq": 1, "tool": "read_file", "args": {"path": "./a.py"}, "status": "success"},
        {"seq": 2, "tool": "read_file", "args": {"path": "b.py"}, "status": "success"},
        {"seq": 3, "tool": "edit_file", "args": {"path": "b.py"}, "status": "success"},
        {"seq": 4, "tool": "edit_file", "args": {"path": "c.py"}, "status": "error"},
    ]
    (task.folder / "tools.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    task.compressor.compress()
    carried = legal(task)[3]["content"]
    assert "Files changed, the newest last:\n- b.py\n\nFiles read, the newest last:\n- a.py\n\n" in carried
    assert "- edit_file c.py → " in carried


def test_the_last_summary_is_input_of_the_next(new_task):
    task = new_task(GOOD, strategy="summary").begin()
    task.fill(14)
    assert task.compressor.compress() == 1
    task.fill(14)
    assert task.compressor.compress() == 2
    assert {"summary_so_far": honest(task.writer.requests[0])} in sent(task.writer.requests[1])
    first, second = task.store.compactions.all()
    assert second["start_seq"] == first["end_seq"] + 1


def test_what_summarising_cost_is_recorded_with_the_summary(new_task):
    from agent.values import Answer

    task = new_task(GOOD, strategy="summary").begin().fill(14)
    task.writer.summary = Answer("as it was written", usage=Usage(4000, 60))
    task.compressor.compress()
    assert task.store.totals().usage == Usage(4000, 60)


def test_what_a_summary_cost_that_was_not_used_is_recorded_with_the_next(new_task):
    from agent.values import Answer

    task = new_task("Error: 500", GOOD, strategy="summary").begin().fill(14)
    task.writer.summary = Answer("Error: 500", usage=Usage(3000, 10))
    task.compressor.compress()
    assert task.store.totals().usage == Usage()
    task.fill(14)
    task.writer.summary = Answer("as it was written", usage=Usage(4000, 60, 50))
    assert task.compressor.compress() == 1
    assert task.store.totals().usage == Usage(7000, 70, 50)
    task.fill(14)
    task.compressor.compress()
    assert task.store.totals().usage == Usage(7000, 70, 50), "no answer is counted twice"


def test_keep_recent_messages_is_rounded_down_when_they_do_not_fit(new_task):
    task = new_task(GOOD, strategy="summary", keep_recent_messages=100).begin().fill(14)
    assert task.compressor.compress(force=True) == 1
    assert not task.compressor.should_compress()
    assert len(legal(task)) > 6


def test_a_summary_over_its_budget_is_asked_for_once_more_and_shorter(new_task):
    def long(text):
        entries = "\n".join(f"- part {number}: line {number * 7} was read and kept as it was" for number in range(300))
        return f"{honest(text)}\n{entries}"

    task = new_task(long, GOOD, strategy="summary", context_length=16384).begin().fill(30)
    assert task.compressor.compress() == 1
    first, second = task.writer.requests
    assert words_asked(second) < words_asked(first)
    assert "too long" in second
    assert task.store.summaries.get_latest_summary()["summary"] == marked(honest(second))


def test_a_second_summary_over_its_budget_is_not_used(new_task):
    def long(text):
        return "\n".join([honest(text), *(f"- part {number}: {number * 7} was read" for number in range(500))])

    task = new_task(long, strategy="summary", context_length=16384).begin().fill(30)
    assert task.compressor.compress() is None
    assert len(task.writer.requests) == 2
    assert [fields["strategy"] for fields in task.events("compaction")] == ["window"]


@pytest.mark.parametrize("strategy", ["summary", "sliding_window"])
@pytest.mark.parametrize("window", [16_384, 65_536, 131_072])
@pytest.mark.parametrize("said", ["OK.", honest])
def test_after_any_means_the_view_is_near_the_same_level(new_task, strategy, window, said):
    """A failed summary takes no more away than a good one: 0.6 of the mark, less a group and what a summary may
    have and did not use."""
    task = new_task(said, strategy=strategy, context_length=window, durability="none").begin().fill_to_mark(800)
    task.compressor.compress()
    [done] = task.events("compaction")
    assert 0.3 <= done["tokens_after"] / task.window.limits.compress_at <= 0.62


def test_the_reset_keeps_what_fits_too(new_task):
    task = new_task(context_length=65_536, durability="none", keep_recent_messages=5).begin().fill_to_mark(800)
    task.compressor.reset()
    [done] = task.events("compaction")
    assert done["strategy"] == "reset"
    assert done["tokens_after"] >= 0.5 * task.window.limits.compress_at


def test_the_newest_messages_are_kept_beyond_that_level_where_they_fit(new_task):
    task = new_task(strategy="sliding_window", keep_recent_messages=12).begin().fill_to_mark(600)
    task.compressor.compress()
    assert len(task.view()) >= 12 + 2
    [done] = task.events("compaction")
    assert 0.6 < done["tokens_after"] / task.window.limits.compress_at <= 0.85


def test_a_stop_while_the_summary_is_written_records_nothing(new_task):
    stop = Interrupted(Outcome(End.STOPPED))
    task = new_task(stop, strategy="summary").begin().fill(14)
    before = task.current()
    with pytest.raises(Interrupted):
        task.compressor.compress()
    assert task.current() == before
    assert not [name for name in FILES if (task.folder / name).exists()]


def test_a_reopened_task_goes_on_from_the_same_view(new_task):
    from agent.context import MessageStore

    task = new_task(GOOD).begin()
    for _ in range(30):
        task.group(300)
        if task.compressor.should_compress():
            task.compressor.compress()
    before = task.current()
    task.store.close()
    again = MessageStore(task.folder, task.settings)
    assert again.repairs == []
    assert again.get_current_context_file().read_bytes() == before


def test_a_strategy_of_somebody_else_is_a_dotted_path(new_task):
    task = new_task(GOOD, strategy="agent.window.strategies:SlidingWindow").begin().fill(14)
    task.compressor.compress()
    assert [fields["strategy"] for fields in task.events("compaction")] == ["window"]


def test_compacting_a_long_conversation_keeps_memory_flat(new_task):
    peaks = []
    for groups in (20, 100):
        task = new_task(GOOD, strategy="summary", context_length=500_000, durability="none").begin()
        for _ in range(groups):
            task.group(2500)
        task.writer.get_summary = lambda path: FIXED
        task.window.assembler.view.read()
        tracemalloc.start()
        task.compressor.compress(force=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert task.events("compaction")
    assert peaks[1] < peaks[0] + 300_000


steps = st.lists(
    st.one_of(
        st.tuples(st.just("calls"), st.integers(1, 4), st.integers(20, 700)),
        st.tuples(st.just("plain"), st.just(0), st.integers(5, 200)),
        st.tuples(st.just("user"), st.just(0), st.integers(5, 200)),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=either(8, 15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.sampled_from(["hybrid", "summary", "sliding_window", "mask"]), st.integers(0, 8))
def test_every_compaction_leaves_a_legal_list_of_whole_groups(new_task, body, strategy, keep):
    task = new_task(
        GOOD, strategy=strategy, keep_recent_messages=keep, min_messages_to_summarize=3,
        context_length=4096,
    ).begin()  # fmt: skip
    for kind, calls, size in body:
        if kind == "calls":
            task.group(size, calls=calls)
        elif kind == "plain":
            task.store.add_message("assistant", "word " * size)
            task.store.add_message("user", "Go on.", kind="nudge")
        else:
            task.store.add_message("user", "word " * size, kind="comment")
        used = task.window.assembler.tokens_in_use()
        if task.compressor.should_compress():
            done = len(task.events("compaction"))
            try:
                task.compressor.compress()
            except CompactionStuck:
                return
            if len(task.events("compaction")) > done:
                assert task.window.assembler.tokens_in_use() < used
        try:
            view = legal(task)
        except DoesNotFit:  # the newest turn alone is too large for this window
            return
        assert view[0]["role"] == "system"
        assert view[1]["content"].startswith("Fix the bug")
        open_calls = []
        for message in view:
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
            else:
                assert not open_calls
                open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        assert not open_calls

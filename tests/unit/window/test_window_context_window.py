"""The window of a task as the loop uses it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from length import either
from summaries import honest

from agent.errors import ContextOverflow, RequestTooLarge
from agent.tokens import MemoryRatios, counter_for
from agent.values import Answer, Usage
from agent.window import DoesNotFit, make_window

GOOD = honest


def test_a_request_over_the_limit_is_compacted_before_it_is_planned(new_task):
    task = new_task(GOOD).begin().fill(30)
    plan = task.window.plan()
    assert plan.tokens <= plan.limit
    assert not plan.metadata["needs_compaction"]
    assert task.events("compaction")


def test_a_plan_over_the_limit_without_a_summariser_leaves_the_oldest_out(new_task):
    task = new_task("", strategy="summary").begin().fill(30)
    assert task.window.plan().tokens <= task.window.limits.input_limit


def test_make_room_says_whether_it_helped(new_task):
    task = new_task(GOOD).begin().fill_to_mark()
    assert task.window.needs_compaction()
    assert task.window.compact()
    assert not task.window.needs_compaction()
    assert False in [task.window.compact() for _ in range(4)]


def test_an_overflow_teaches_the_window_and_compacts(new_task):
    task = new_task(GOOD, context_length=32_768).begin().fill(20)
    task.window.plan()
    assert task.window.compact(ContextOverflow("too long", status=400, limit=8192, requested=9000))
    assert task.window.limits.window == 8192
    assert task.window.plan().tokens <= task.window.limits.input_limit
    [event] = task.events("window_learnt")
    assert event["window"] == 8192
    assert "learnt from an error" in task.window.limits.explain()


def test_a_limit_in_the_servers_tokens_is_turned_into_ours(new_task):
    task = new_task(GOOD, context_length=32_768).begin().fill(20)
    asked = task.window.plan().tokens
    task.window.compact(ContextOverflow("too long", limit=8000, requested=2 * asked))
    assert task.window.limits.window == pytest.approx(4000, rel=0.01)


def test_an_overflow_without_numbers_makes_the_window_smaller_each_time(new_task):
    task = new_task(GOOD, context_length=32_768).begin().fill(20)
    asked = task.window.plan().tokens
    task.window.compact(ContextOverflow("too long"))
    assert task.window.limits.window == int(asked * 0.75)


def test_case_50_a_request_over_a_per_minute_limit_is_made_smaller(new_task):
    task = new_task(GOOD, context_length=32_768).begin().fill(20)
    task.window.plan()
    assert task.window.compact(RequestTooLarge("TPM", status=429, limit=6000, requested=11_000))
    assert task.window.plan().tokens < 6000


def test_the_second_overflow_in_a_row_is_met_by_the_reset(new_task):
    task = new_task(GOOD, context_length=32_768).begin().fill(20)
    task.window.plan()
    overflow = ContextOverflow("too long", limit=9000, requested=11_000)
    assert task.window.compact(overflow)
    task.window.plan()
    asked = len(task.writer.requests)
    assert task.window.compact(ContextOverflow("too long", limit=2000, requested=4000))
    assert task.events("compaction")[-1]["strategy"] == "reset"
    assert len(task.writer.requests) == asked


def test_an_overflow_that_nothing_can_help_ends_without_room(new_task):
    task = new_task(GOOD).begin().group(100)
    task.window.plan()
    helped = [task.window.compact(ContextOverflow("too long")) for _ in range(4)]
    assert helped == sorted(helped, reverse=True)
    assert not helped[-1]
    assert {one["strategy"] for one in task.events("compaction")} <= {"trim"}


def test_the_newest_turn_is_made_to_fit_a_learnt_window(new_task):
    task = new_task(GOOD).begin().group(3000)
    task.window.plan()
    assert task.window.compact(ContextOverflow("too long", limit=2048, requested=3500))
    plan = task.window.plan()
    assert plan.tokens <= task.window.limits.input_limit < 2048


def test_older_messages_go_before_the_newest_results_are_cut_to_their_least(new_task):
    task = new_task(context_length=4096, strategy="sliding_window").begin()
    for number in range(9):
        task.store.add_message("user", f"Point {number}: " + "keep the old names of all files. " * 20, kind="comment")
    task.fill(2, 500).group(2000, calls=3, path="a.py", note="keep the old names of all files. " * 54)
    plan = task.window.plan()
    limits = task.window.limits
    results = [one["content"] for one in task.view() if one["role"] == "tool"][-3:]
    assert plan.tokens <= limits.input_limit
    assert min(map(len, results)) > 300


def test_a_turn_too_large_for_the_learnt_window_is_told(new_task):
    task = new_task(GOOD).begin().group(20, text="word " * 3000)
    task.window.plan()
    task.window.compact(ContextOverflow("too long", limit=2048, requested=3500))
    with pytest.raises(DoesNotFit):
        task.window.plan()


def test_the_window_that_the_server_has_loaded_counts(new_task):
    task = new_task(GOOD, window=4096)
    assert task.window.limits.window == 4096


def test_a_drift_of_more_than_ten_percent_is_told_and_learnt(new_task):
    task = new_task(GOOD).begin().fill(4)
    ratios = MemoryRatios()
    task.store.counter = counter_for("phi4", ratios)
    task.window = make_window(task.settings, task, task.writer, events=task)
    planned = task.window.plan().tokens
    task.writer.last = Answer("x", usage=Usage(planned * 2, 5))
    task.window.needs_compaction()
    task.window.needs_compaction()
    [event] = task.events("token_drift")
    assert event == {"model": "phi4", "estimated": planned, "reported": planned * 2, "ratio": ratios.get("phi4")}
    assert ratios.get("phi4") > 1.2


def test_a_good_estimate_is_not_worth_a_line(new_task):
    task = new_task(GOOD).begin().fill(4)
    task.writer.last = Answer("x", usage=Usage(task.window.plan().tokens, 5))
    task.window.needs_compaction()
    assert task.events("token_drift") == []


def test_another_model_writes_the_summaries_when_one_is_configured(new_task):
    task = new_task(GOOD, summary_model={"provider": "ollama", "model": "small"})
    client = task.window.compressor.llm_client
    assert (client.provider, client.model) == ("ollama", "small")


def test_the_window_explains_itself(new_task):
    assert "tokens counted by bytes:unknown" in new_task().window.explain()


def test_files_that_a_killed_process_left_are_removed(new_task):
    task = new_task(GOOD).begin()
    (task.folder / "summary_request.txt").write_text("half")
    make_window(task.settings, task, task.writer)
    assert not (task.folder / "summary_request.txt").exists()


@settings(max_examples=either(8, 12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([2048, 4096, 16_384]),
    st.sampled_from(["hybrid", "summary", "sliding_window", "mask"]),
    st.lists(st.tuples(st.integers(1, 3), st.integers(10, 900)), min_size=3, max_size=15),
    st.sampled_from([GOOD, "", "Error: 500"]),
)
def test_no_plan_is_ever_over_the_limit(new_task, window, strategy, groups, answer):
    task = new_task(answer, context_length=window, strategy=strategy, durability="none").begin()
    for calls, size in groups:
        task.group(size, calls=calls)
        try:
            plan = task.window.plan()
            if task.window.needs_compaction():
                task.window.compact()
        except DoesNotFit:
            assert window < 4096, "what can be shortened ends no task"
            return
        assert plan.tokens <= plan.limit <= task.window.limits.most
        assert plan.tokens + plan.output <= window
        assert plan.output == task.window.limits.output or plan.tokens > task.window.limits.input_limit


# --- what is learnt within a task, and kept for it -----------------------------------------------------------------


def test_what_a_report_taught_is_in_the_next_estimate_of_the_same_task(new_task):
    task = new_task(GOOD, strategy="sliding_window").begin()
    ratios = MemoryRatios()
    task.store.counter = counter_for("phi4", ratios)
    task.window = make_window(task.settings, task, task.writer, events=task)
    for _ in range(3):
        plan = task.window.plan()
        task.group(300)
        task.writer.last = Answer("x", usage=Usage(round(1.5 * task.window.planned), 5))
        task.window.needs_compaction()
    assert ratios.get("phi4") == pytest.approx(1.5, rel=0.01)
    assert task.window.plan().tokens == pytest.approx(1.5 * task.window.planned, rel=0.01)
    assert plan.tokens > task.window.limits.window * 0.05
    layers = task.window.plan().metadata["layer_tokens"]
    assert sum(layers.values()) == pytest.approx(task.window.plan().tokens, abs=3)


@pytest.mark.parametrize("strategy", ["mask", "sliding_window"])
def test_right_after_a_compaction_only_what_was_never_reported_is_estimated(new_task, strategy):
    """A server that counts tools and system prompt twice as high, and results a little lower."""
    task = new_task(GOOD, strategy=strategy, durability="none").begin()
    assembler = task.window.assembler

    def told():
        seen = assembler.view.read()
        head = seen.head + seen.briefing + assembler.fixed_tokens()
        return 2 * head + round(0.92 * (seen.tokens - seen.head - seen.briefing))

    while not task.window.needs_compaction():
        before = assembler.view.read().tokens
        task.group(300, usage={"prompt_tokens": told(), "completion_tokens": 20})
        assert assembler.view.read().tokens > before
    assert task.window.compact()
    assert task.store.index.reported == 0
    assert assembler.tokens_in_use() == pytest.approx(told(), rel=0.04)
    again = make_window(task.settings, task, task.writer)
    assert again.assembler.tokens_in_use() == assembler.tokens_in_use()


def test_a_report_of_only_what_was_not_cached_is_no_measure_of_what_was_kept(new_task):
    task = new_task(GOOD, strategy="sliding_window", durability="none").begin()
    while not task.window.needs_compaction():
        task.group(300, usage={"prompt_tokens": 10, "completion_tokens": 5})
    task.window.compact()
    assert task.window.assembler.tokens_in_use() == task.window.assembler.estimate()


def test_a_learnt_ratio_moves_the_mark_and_what_a_compaction_leaves(new_task):
    ratios = MemoryRatios()
    ratios.learn("phi4", 1000, 2000)
    task = new_task(GOOD, strategy="sliding_window")
    task.store.counter = counter_for("phi4", ratios)
    task.window = make_window(task.settings, task, task.writer, events=task)
    task.begin()
    while not task.window.needs_compaction():
        task.group(300)
    assert 2 * task.window.assembler.estimate() > task.window.limits.compress_at
    task.window.compact()
    assert 2 * task.window.assembler.estimate() < 0.7 * task.window.limits.compress_at


class Row:
    """The part of a TaskContextManager that keeps what was learnt."""

    def __init__(self, task):
        self.kept = {}
        self.get_message_store = task.get_message_store
        self.get_summary_store = task.get_summary_store

    def learnt_window(self, model):
        return self.kept.get(model)

    def learn_window(self, model, tokens):
        self.kept[model] = tokens


def test_a_window_that_an_error_taught_is_kept_for_the_task(new_task):
    task = new_task(GOOD, context_length=32_768).begin().fill(20)
    row = Row(task)
    window = make_window(task.settings, row, task.writer, events=task)
    window.plan()
    window.compact(ContextOverflow("too long", limit=8192, requested=9000))
    assert row.kept == {"phi4": 8192}
    again = make_window(task.settings, row, task.writer, events=task)
    assert again.limits.window == 8192
    assert again.limits.sources[0] == ("learnt from an error", 8192)


# --- a tenth, or another means -------------------------------------------------------------------------------------


def weak(task):
    return [one for one in task.store.compactions.all() if one["tokens_after"] > 0.9 * one["tokens_before"]]


def until_the_end(task, *, restarts=False):
    for _ in range(60):
        task.group(40)
        if restarts:
            task.window = make_window(task.settings, task, task.writer, events=task)
        plan = task.heard().window.plan()
        assert plan.tokens <= task.window.limits.most, "it lives on with a smaller answer"


def test_only_the_last_means_may_free_less_than_a_tenth_and_at_most_twice_in_a_row(new_task):
    task = new_task(GOOD, context_length=4096, strategy="hybrid", keep_recent_messages=1)
    task.begin_large(2540)
    until_the_end(task)
    assert {one["strategy"] for one in weak(task)} <= {"reset", "trim"}


def test_a_restart_does_not_forget_compactions_without_progress(new_task):
    task = new_task(GOOD, context_length=4096, strategy="sliding_window", keep_recent_messages=1)
    task.begin_large(2540)
    until_the_end(task, restarts=True)
    assert {one["strategy"] for one in weak(task)} <= {"reset", "trim"}

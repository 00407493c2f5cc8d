"""The first request to a model whose vocabulary is not known keeps a wider margin, until its server has reported."""

import pytest

from agent.tokens import MemoryRatios, cautious_of, count_message, counter_for
from agent.tokens.base import LOW, cautious
from agent.values import Answer, Usage
from agent.window import WindowLimits, make_window

SCRIPTS = {
    "english": "The total is wrong when the discount is applied before rounding. ",
    "numbers": "184223.15,-0.0032,1764416000,99.871\n",
    "thai": "ยอดรวมของใบแจ้งหนี้ผิดไปไม่กี่สตางค์เมื่อหักส่วนลดก่อนปัดเศษ ",
    "malayalam": "കിഴിവ് റൗണ്ട് ചെയ്യുന്നതിന് മുമ്പ് കണക്കാക്കുമ്പോൾ ബില്ലിന്റെ തുക തെറ്റുന്നു. ",
}


def conversation(task, text):
    """A conversation of five turns of about 1,200 estimated tokens each, of another model, without a report."""
    counter = counter_for("phi4").plain
    task.begin()
    for number in range(5):
        call = {"id": f"c{number}", "name": "read_file", "arguments": {"path": f"{number}.md"}}
        task.store.add_message("assistant", None, tool_calls=[call])
        times = 1 + 1200 // counter.count(text)
        task.store.add_message("tool", text * times, tool_call_id=f"c{number}", tool_seq=number + 1)
    return task


def doubtful(task):
    """The same as on the first request: answers without a report are not looked at."""
    task.store.index.turns = 0
    return task


def true_count(task, factor):
    counter = counter_for("phi4").plain
    return factor * sum(count_message(counter, one) for one in task.view())


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_first_request_fits_although_the_estimate_is_forty_five_percent_low(new_task, kind):
    task = doubtful(conversation(new_task(context_length=8192, strategy="sliding_window"), SCRIPTS[kind]))
    plan = task.window.plan()
    assert plan.tokens <= plan.limit
    assert true_count(task, 1 / (1 - LOW)) + plan.output <= 8192


def test_what_would_overflow_without_the_margin(new_task):
    task = conversation(new_task(context_length=8192, strategy="sliding_window"), SCRIPTS["english"]).heard()
    plan = task.window.plan()
    assert true_count(task, 1 / (1 - LOW)) + plan.output > 8192


def test_the_margin_is_wider_for_what_known_vocabularies_disagree_on(new_task):
    doubt = {}
    for kind, text in SCRIPTS.items():
        task = doubtful(conversation(new_task(context_length=200_000), text))
        doubt[kind] = task.window.assembler.estimate_doubt
        task.store.close()
    assert doubt["english"] == pytest.approx(1 / (1 - LOW), rel=0.02)
    assert doubt["thai"] > 2.3
    assert doubt["malayalam"] > 3


def answered(task, prompt):
    task.writer.last = Answer("text", (), "stop", Usage(prompt, 10))
    task.store.add_message("assistant", "text", usage=Usage(prompt, 10))
    task.store.add_message("user", "go on")


def test_the_first_report_ends_it(new_task):
    task = new_task(context_length=8192).begin(task="word " * 500)
    wide = task.window.limits
    assert wide.doubt > 1.5
    assert wide.input_limit < 8192 * 0.5
    answered(task, task.window.plan().tokens)
    assert task.window.limits == WindowLimits.from_window([("llm.ollama.context_length", 8192)])
    assert "not known" in wide.explain()
    assert "not known" not in task.window.limits.explain()


def test_a_report_in_another_task_of_the_model_ends_it_too(new_task):
    ratios = MemoryRatios()
    counter = counter_for("phi4", ratios)
    assert cautious_of(counter) is not None
    counter.learn(1000, 1100)
    assert cautious_of(counter) is None


@pytest.mark.parametrize("model", ["gpt-4o", "llama3:8b", "claude-sonnet-4-5", "gemma3"])
def test_a_known_family_has_no_such_margin(model):
    assert cautious_of(counter_for(model)) is None


def test_a_server_that_never_reports_gets_the_whole_window_after_three_answers(new_task):
    task = new_task(context_length=8192).begin(task="word " * 500)
    for _ in range(3):
        assert task.window.limits.doubt > 1.5
        task.store.add_message("assistant", "text")
        task.store.add_message("user", "go on")
    assert task.window.limits.doubt == 1.0


def test_it_ends_no_task_and_what_nothing_can_make_smaller_is_sent(new_task):
    task = new_task(context_length=4096).begin(task="word " * 2500)
    task.window.check()
    plan = task.window.plan()
    assert task.window.limits.input_limit < plan.tokens <= plan.limit
    assert list(task.store.compactions.all()) == []


def test_a_window_that_an_error_taught_has_no_margin_beside_it(new_task):
    task = new_task(context_length=8192).begin(task="word " * 500)
    task.learnt_window = lambda _model: 6000
    task.window = make_window(task.settings, task, task.writer, events=task)
    assert task.window.limits.doubt == 1.0


def test_parts_of_the_briefing_are_counted_at_the_most_that_they_can_have(new_task):
    task = new_task(context_length=8192)
    text = SCRIPTS["thai"] * 20
    assert task.window.assembler.count(text) == cautious().count(text) > 2 * counter_for("phi4").count(text)
    assert task.heard().window.assembler.count(text) == counter_for("phi4").count(text)

"""A plan as a table: every layer once, what is kept adds up, what is cut says where it is and why."""

import orjson
import pytest
from summaries import honest

from agent.window.context_layers import AssemblyOptions
from agent.window.request_outline import outline

GOOD = honest


def rows(task):
    return {one.layer: one for one in outline(task.window.assembler, task.store)}


def kept(task):
    return sum(one.tokens for one in outline(task.window.assembler, task.store) if one.state == "kept")


def test_a_new_task_has_its_layers_and_nothing_is_cut(new_task):
    task = new_task().begin().fill(3)
    found = rows(task)
    assert list(found) == ["tools", "system", "semantic", "user_message", "working"]
    assert found["semantic"].state == "none"
    assert {one.state for one in found.values()} == {"kept", "none"}
    assert found["working"].messages == 6
    assert kept(task) == task.window.plan().tokens


@pytest.mark.parametrize("strategy", ["hybrid", "summary", "sliding_window", "mask"])
def test_after_a_compaction_it_says_what_is_left_out_or_masked_and_the_rest_adds_up(new_task, strategy):
    task = new_task(GOOD, strategy=strategy).begin().fill_to_mark()
    task.compressor.compress(force=True)
    found = rows(task)
    assert kept(task) == task.window.plan().tokens
    assert ("left out" in found) == (strategy in ("summary", "sliding_window"))
    if "left out" in found:
        cut = task.store.index.cut
        assert found["left out"].span == f"messages.jsonl seq 3 to {cut.end_seq}"
        assert found["left out"].messages == cut.end_seq - 2
        assert found["carried"].messages >= 1
        assert found["carried"].why.startswith("said again: ")
        assert "lines of files read" in found["carried"].why
    else:
        assert found["old tool results"].state == "masked"
        assert found["old tool results"].tokens > 500
    assert ("session_summary" in found) == (strategy == "summary")
    if strategy == "summary":
        assert found["session_summary"].messages == 1
        assert "summary 1 stands for messages up to" in found["session_summary"].why


def test_a_summary_that_the_options_leave_out_is_said_to_be_so(new_task):
    task = new_task(GOOD, strategy="summary").begin().fill_to_mark()
    task.compressor.compress(force=True)
    assembler = task.window.assembler
    plan = assembler.assemble(AssemblyOptions(None, False)).plan
    rows = {one.layer: one for one in outline(assembler, task.store, plan.spans, summary=False)}
    assert rows["session_summary"].state == "left out"
    assert rows["session_summary"].why.startswith("left out by --no-summary; summary 1 stands for messages up to")
    assert sum(one.tokens for one in rows.values() if one.state == "kept") == plan.tokens


def test_the_spans_are_whole_lines_of_the_view_one_after_the_other(new_task):
    task = new_task(GOOD, strategy="summary").begin().fill_to_mark()
    task.compressor.compress(force=True)
    task.store.add_message("user", "And quickly.", kind="comment")
    data = task.current()
    at = 0
    for one in outline(task.window.assembler, task.store):
        if not one.span.startswith("current.jsonl"):
            continue
        start, end = (
            int(number.replace(",", "")) for number in one.span.removeprefix("current.jsonl bytes ").split(" to ")
        )
        assert start == at
        assert len([orjson.loads(line) for line in data[start:end].splitlines()]) == one.messages
        at = end
    assert at == len(data)


def test_provider_fields_that_no_prompt_has_are_in_no_row(new_task):
    task = new_task().begin().fill(2)
    fields = {"wire": "ollama", "model": "phi4", "server": "x", "message": {"reasoning_content": "I think. " * 500}}
    task.store.add_message("assistant", "Next.", provider_fields=fields)
    task.store.add_message("user", "Go on.")
    sent = kept(task)
    assert sent == task.window.plan().tokens > 1000
    task.window.assembler.sends_back = lambda _name: False
    assert sent - 900 > kept(task) == task.window.plan().tokens

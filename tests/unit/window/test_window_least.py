"""A window that takes no task at all is told before anything is sent, with the least that would do."""

import pytest

from agent.prompts import render
from agent.tokens import PRIMING, count_tools, counter_for
from agent.tools import Toolbox
from agent.window import DoesNotFit, WindowLimits
from agent.window.minimum_window import CONVERSATION, TASK, too_small


def limits(window, *, exact=False):
    return WindowLimits.from_window([("llm.ollama.context_length", window)], exact=exact)


@pytest.mark.parametrize("exact", [True, False])
def test_what_is_named_is_the_least_that_would_do(exact):
    error = too_small(limits(2048, exact=exact), 1000, 600, exact=exact, configured=False)
    assert error.code == "window_too_small"
    assert f"A window of {error.needed:,} tokens would do; the one in force has 2,048" in str(error)
    assert "tools 1,000; system prompt 600; shortest task 256; shortest conversation 512; answer, at least 256" in str(error)  # fmt: skip
    assert limits(error.needed, exact=exact).most >= 1600 + TASK + CONVERSATION
    assert limits(error.needed - 256, exact=exact).most < 1600 + TASK + CONVERSATION
    assert too_small(limits(error.needed, exact=exact), 1000, 600, exact=exact, configured=False) is None


def test_a_system_prompt_of_the_user_is_what_can_be_shortened():
    assert too_small(limits(4096), 1000, 9000, exact=True, configured=True).code == "system_prompt_too_large"
    assert too_small(limits(4096), 1000, 9000, exact=True, configured=False).code == "window_too_small"


def test_our_own_tools_and_prompt_work_in_4096_and_not_in_2048(tmp_path):
    counter = counter_for("gpt-4o")
    box = Toolbox(root=tmp_path, context_dir=tmp_path, run=None, redact=str, clean=str, lookup=lambda _seq: None)
    tools = count_tools(counter, box.schemas()) + PRIMING
    system = counter.count(render("system"))
    assert too_small(limits(4096), tools, system, exact=False, configured=False) is None
    error = too_small(limits(2048), tools, system, exact=False, configured=False)
    assert 2048 < error.needed < 4096


def test_a_window_says_it_before_the_first_message(new_task):
    task = new_task(context_length=2048)
    task.window.check()
    small = new_task(context_length=1400)
    with pytest.raises(DoesNotFit) as caught:
        small.window.check()
    assert caught.value.code == "window_too_small"
    assert caught.value.needed <= 2048

"""The results of one answer share one budget in tokens; each is capped too, and nothing is lost."""

import re
from types import SimpleNamespace

import pytest

from agent.tokens import counter_for
from agent.tools.result_budget import LEAST_SHARE

COUNT = counter_for("gpt-4o").count
TEXTS = {
    "code": "def total_{n}(prices):\n    return sum(prices) + {n}\n",
    "japanese": "値{n} = 合計を計算する関数、四捨五入は最後に一度だけ行う。\n",
    "digest": "d41d8cd98f00b204e9800998ecf8427e 0cc175b9c0f1b6a831c399e26977266{n}\n",
    "one line": "x{n}y 1234567890 ",
}


def fill(tree, kind="code", lines=900, files=6):
    for number in range(files):
        text = "".join(TEXTS[kind].format(n=n) for n in range(lines))
        (tree / f"f{number}.py").write_text(text, encoding="utf-8")


@pytest.fixture
def bound(make_box):
    """A toolbox under a window of so many tokens, whose results have so many together."""

    def make(window, results, **more):
        box = make_box(**more)
        box.limit_tokens(SimpleNamespace(tokens=window, results=results, count=COUNT))
        return box

    return make


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("budget", [400, 1500, 6000])
def test_parallel_reads_stay_within_their_sum(bound, tree, kind, budget):
    fill(tree, kind)
    box = bound(8192, budget)
    box.start_answer(6)
    results = [box.run("read_file", {"path": f"f{number}.py"}) for number in range(6)]
    sizes = [COUNT(one.content) for one in results]
    assert sum(sizes) <= max(budget, 6 * 2 * LEAST_SHARE)
    assert max(sizes) <= 2 * max(LEAST_SHARE, budget // 6), "none eats the part of the others"
    if budget == 6000 and kind != "one line":
        assert min(sizes) >= budget // 6 // 2, "and the budget is used"
        assert all("go on with offset=" in one.content for one in results)


def test_a_page_goes_on_exactly_where_it_ended(bound, tree):
    fill(tree, "japanese", lines=200, files=1)
    box = bound(8192, 500)
    lines, offset = [], 1
    while offset:
        box.start_answer(1)
        content = box.run("read_file", {"path": "f0.py", "offset": offset}).content
        assert COUNT(content) <= 500
        head, *body = content.split("\n")
        lines += body
        found = re.search(r"go on with offset=(\d+)", head)
        offset = int(found[1]) if found else 0
    assert lines == (tree / "f0.py").read_text(encoding="utf-8").splitlines()


def test_small_results_leave_their_rest_to_those_that_follow(bound, tree):
    fill(tree, files=1)
    (tree / "small.txt").write_text("one line\n")
    box = bound(32_768, 3000)
    box.start_answer(3)
    for _ in range(2):
        box.run("read_file", {"path": "small.txt"})
    last = COUNT(box.run("read_file", {"path": "f0.py"}).content)
    assert 2000 < last <= 3000
    box.start_answer(3)
    assert COUNT(box.run("read_file", {"path": "f0.py"}).content) <= 1000, "the next answer has a budget of its own"


def test_a_command_that_says_too_much_is_head_tail_and_a_pointer_to_the_whole(bound):
    box = bound(4096, 250)
    box.start_answer(1)
    result = box.run("run_command", {"command": "seq 1 4000"})
    assert COUNT(result.content) <= 250
    assert result.output == "outputs/0001.txt"
    assert re.search(r"^1$", result.content, re.MULTILINE)
    assert re.search(r"^4000$", result.content, re.MULTILINE)
    assert 'read_output("outputs/0001.txt"' in result.content
    with box.outputs.open("outputs/0001.txt") as descriptor, open(descriptor, closefd=False) as file:
        assert [line for line in file.read().splitlines() if line.isdigit()] == [str(n) for n in range(1, 4001)]


def test_a_cap_follows_the_window_in_force_and_not_the_configured_one(bound, tree):
    from agent.config import settings_of

    settings = settings_of({"llm": {"provider": "openai", "openai": {"model": "m", "context_length": 131_072}}})
    fill(tree, files=1)
    box = bound(8192, 1_000_000, settings=settings)
    assert box.room == 16_000
    box.start_answer(1)
    assert len(box.run("read_file", {"path": "f0.py"}).content) <= 8192 * 3 // 8
    assert box.room == 8192 * 3 // 8


def test_an_error_is_capped_by_the_same_budget(bound, tree):
    box = bound(4096, 150)
    box.start_answer(1)
    result = box.run("read_file", {"path": "値" * 900})
    assert result.status == "error"
    assert COUNT(result.content) <= 150


def test_a_text_is_stored_whole_when_it_is_shortened(bound):
    box = bound(8192, 1000)
    text = "".join(f"row {n}: 四捨五入\n" for n in range(2000))
    shown = box.shorten(text, 200)
    assert COUNT(shown) <= 200
    name = re.search(r'read_output\("(outputs/\d+\.txt)"', shown)[1]
    with box.outputs.open(name) as descriptor, open(descriptor, encoding="utf-8", closefd=False) as file:
        assert file.read() == text
    assert box.shorten("short", 200) == "short"

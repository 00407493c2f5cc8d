"""Structure decides what is a summary: every kind with a text that just is one, and one that just is none."""

import pytest

from agent.tokens import counter_for
from agent.window.judge import BadSummary, Source, TooLong, beside, judged, looped, sections, without_thoughts
from agent.window.names import Names, is_named, names_in

COUNT = counter_for("phi4").count
PROMPT = "Summarise.\n## 1. Decisions\n## 2. Changes\n## 3. Next step\nat most 400 words"
SUMMARY = """## 1. Decisions
- Totals are rounded once, at the end, since rounding each price loses cents.
## 2. Changes
- src/cart.py: total() sums first. tests/test_cart.py has test_rounding.
## 3. Next step
- Run pytest tests/test_cart.py again."""
RECORDS = [
    {"role": "assistant", "content": "", "calls": [{"name": "edit_file", "arguments": {"path": "src/cart.py"}}]},
    {
        "role": "assistant",
        "content": "Run it.",
        "calls": [{"name": "run", "arguments": "pytest tests/test_cart.py -k test_rounding"}],
    },
    {"role": "user", "content": "Keep max_price and min_price as they are, see ISSUE_12."},
    {"role": "tool", "content": "def total(prices): ...\n" * 400},
]


def source(tokens=3000):
    found = Source(tokens)
    for record in RECORDS:
        found.names.take(record)
    return found


def judge(text, *, before="", budget=400, prompt=PROMPT, messages=(), tokens=3000):
    return judged(text, source(tokens), messages, prompt=prompt, before=before, budget=budget, count=COUNT)


def test_a_summary_is_taken_as_it_is():
    assert judge(f"\n{SUMMARY}\n") == SUMMARY


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("## ", "#### "),
        lambda text: text.replace("## 1. ", "**").replace("## 2. ", "**").replace("## 3. ", "**").replace("s\n", "s**\n").replace("step\n", "step**\n"),
        lambda text: text.replace("## ", ""),
        lambda text: "\n".join(line for line in text.splitlines() if line.startswith("-")) + "\n- nothing else",
        lambda text: text.replace("## 1. Decisions", "【決定】").replace("## 2. Changes", "【変更】").replace("## 3. Next step", "【次】"),
        lambda text: text.replace("## 1. Decisions", "<decisions>").replace("## 2. Changes", "<changes>").replace("## 3. Next step", "<next>"),
        lambda text: text.replace("## 1. Decisions", "Entscheidungen:").replace("## 2. Changes", "Änderungen:").replace("## 3. Next step", "Weiter:"),
    ],
)  # fmt: skip
def test_sections_are_known_in_any_form(change):
    assert sections(change(SUMMARY)) >= 3
    assert judge(change(SUMMARY))


def test_prose_is_taken_where_the_prompt_asks_for_no_headings():
    prose = (
        " ".join(line.strip("-# ") for line in SUMMARY.splitlines() if line.startswith("-")) + " Nothing else was done."
    )
    with pytest.raises(BadSummary, match="sections"):
        judge(prose)
    assert judge(prose, prompt="Summarise in a paragraph.") == prose


@pytest.mark.parametrize("share", [1, 2])
def test_an_extract_is_no_copy_and_a_copied_message_is_one(share):
    lines = [
        f"The function part_{n} of src/part{n}.py of src/cart.py returned {n * 37 % 101} where {n} was expected by test_{n}."
        for n in range(60)
    ]
    message = "\n".join(lines)
    extract = "\n".join(
        f"## {n}. Found\n- {lines[n][: 110 // share]}\n- {lines[n + 20][: 110 // share]}" for n in range(3)
    )
    assert judge(extract, prompt="Extract.", messages=[message])
    with pytest.raises(BadSummary, match="copy"):
        judge("\n".join(lines[:20]), prompt="Extract.", messages=["x", message], budget=4000)


def test_a_loop_is_a_loop_and_a_list_is_none():
    assert not looped("\n".join(f"- tests/unit/window/test_window_{n}.py was read" for n in range(100)))
    assert not looped("\n".join(f'- read_file {{"path": "src/part{n}.py"}}' for n in range(200)))
    assert not looped(SUMMARY)
    assert not looped("決定：合計は最後に一度だけ丸める。変更：src/cart.py。次：テストを実行する。")
    for text in ("the same again " * 40, "- a.py\n- b.py\n" * 60, "完了しました。" * 100, "Done. " * 9, "。" * 400):
        assert looped(text), text[:20]
    assert looped(SUMMARY + "\n" + "- src/cart.py: total() sums first and rounds then.\n" * 40), "a loop at the end"


@pytest.mark.parametrize("tag", ["think", "thinking", "THINK", "reasoning", "seed:think"])
def test_thoughts_go_and_thoughts_without_an_end_are_no_summary(tag):
    assert without_thoughts(f"<{tag}>\nhm\n</{tag}>\n{SUMMARY}") == SUMMARY
    assert without_thoughts(f"[{tag}]hm[/{tag}]{SUMMARY}") == SUMMARY
    assert without_thoughts(f"hm\n</{tag}>\n{SUMMARY}") == SUMMARY
    for text in (f"<{tag}>{SUMMARY}", f" [{tag}]\n{SUMMARY}"):
        with pytest.raises(BadSummary, match="no end"):
            without_thoughts(text)
    assert (
        without_thoughts(f"{SUMMARY}\n- `<{tag}>` is read by parse_tags()")
        == f"{SUMMARY}\n- `<{tag}>` is read by parse_tags()"
    )


def test_a_summary_of_something_else_names_nothing_of_the_source():
    other = (
        SUMMARY.replace("src/cart.py", "lib/tree.rs")
        .replace("tests/test_cart.py", "lib/tree_test.rs")
        .replace("test_rounding", "depth_first")
    )
    with pytest.raises(BadSummary, match="names 0 of"):
        judge(other)
    assert judge(SUMMARY.replace("src/cart.py", "cart.py")), "the last part of a path is a name"


def test_a_text_over_its_budget_may_be_asked_for_again():
    with pytest.raises(TooLong):
        judge(SUMMARY, budget=COUNT(SUMMARY) // 2)
    assert judge(SUMMARY, budget=int(COUNT(SUMMARY) / 1.4))


def test_a_summary_that_does_not_shrink_is_none():
    with pytest.raises(BadSummary, match="its source"):
        judge(SUMMARY, tokens=COUNT(SUMMARY))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see src/a.py:12 and main.c.", ["src/a.py:12", "main.c"]),
        ("合計はsrc/合計/total.pyでcalc_totalが", ["total.py", "calc_total"]),
        ("e.g. this and/or that, 12:30, 3.14, word-for-word", ["and/or"]),
        ("commit 3f2a9bc of renderTree, C:\\tmp\\x.txt", ["3f2a9bc", "renderTree", "C:\\tmp\\x.txt"]),
    ],
)
def test_names_are_paths_identifiers_and_ids(text, found):
    assert list(names_in(text)) == found


def test_names_are_counted_by_message_and_bounded():
    names = Names()
    for number in range(3000):
        names.take({"role": "user", "content": f"file_{number}.py x{number}y and always/the_same.py"})
    assert names.said["always/the_same.py"] == 3000
    assert len(names.said) <= 4096
    assert is_named("a/b/the_same.py", "in the_same.py")
    assert not is_named("a/b/same", "the same")


def test_a_worse_summary_stands_behind_the_better_one():
    worse = (
        SUMMARY.replace("src/cart.py", "it")
        .replace("tests/test_cart.py", "a test")
        .replace("test_rounding", "one case")
    )
    both = beside(SUMMARY, worse, 400, COUNT)
    assert both.startswith(SUMMARY)
    assert worse.splitlines()[1] not in both.removeprefix(SUMMARY), "what stands there is not said twice"
    assert beside(SUMMARY, SUMMARY, 400, COUNT) == SUMMARY
    assert beside("", worse, 400, COUNT) == worse


def test_in_a_small_budget_the_lines_that_hold_what_was_lost_stand_first():
    old = "\n".join([SUMMARY, *(f"- it was said again that the work goes on, for the {n}th time" for n in range(30))])
    new = "## 1. Decisions\n- none since\n## 2. Changes\n- docs/cart.md tells of it now\n## 3. Next step\n- finish"
    budget = (COUNT(new) + COUNT(SUMMARY)) * 2 // 3 + 8
    found = beside(old, new, budget, COUNT)
    assert COUNT(found) <= budget * 1.5
    assert found.endswith(new)
    assert "src/cart.py" in found
    assert "test_rounding" in found
    assert "for the 3th time" not in found


def test_a_summary_is_refused_where_the_better_one_leaves_no_room_for_it():
    worse = (
        SUMMARY.replace("src/cart.py", "it")
        .replace("tests/test_cart.py", "a test")
        .replace("test_rounding", "one case")
    )
    with pytest.raises(BadSummary, match="of the summary before"):
        beside(SUMMARY, worse, COUNT(SUMMARY) // 3, COUNT)

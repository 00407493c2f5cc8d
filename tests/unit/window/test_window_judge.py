"""Structure decides what is a summary: every kind with a text that just is one, and one that just is none."""

import random
from contextlib import suppress

import pytest

from agent.tokens import counter_for
from agent.window.identifiers import (
    NameIndex,
    found_in,
    is_named,
    names_in,
    stands_in,
    telling_forms,
    values_in,
    weights,
)
from agent.window.summary_check import (
    BadSummary,
    Source,
    TooLong,
    check_summary,
    names_needed,
    repetition_in,
    without_thoughts,
)
from agent.window.summary_merge import merge_missing
from agent.window.text_structure import sections

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
        found.names.add(record)
    return found


def judge(text, *, before="", budget=400, prompt=PROMPT, messages=(), tokens=3000):
    return check_summary(text, source(tokens), messages, prompt=prompt, before=before, budget=budget, count=COUNT)


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


FORMS = {
    "squares": "■ 決定\n合計は src/cart.py で丸める。\n■ 変更\ntests/test_cart.py\n■ 次\ntest_rounding を実行",
    "Chinese numerals": "一、决定：在 src/cart.py 末尾取整\n二、修改：tests/test_cart.py\n三、下一步：运行 test_rounding",
    "Chinese chapters": "第一、src/cart.py\n第二、tests/test_cart.py\n第三、test_rounding",
    "table": "| what | where |\n|---|---|\n| rounded once | src/cart.py |\n| tested | tests/test_cart.py |\n| next | test_rounding |",
    "table without edges": "what | where\n--- | ---\nrounded once | src/cart.py\ntested | tests/test_cart.py\nnext | test_rounding",
    "tabs": "decision\tsrc/cart.py rounds once, at the end\nchange\ttests/test_cart.py\nnext\ttest_rounding",
    "number and dash": "1 - src/cart.py rounds once\n2 - tests/test_cart.py is new\n3 - run test_rounding",
    "parentheses": "(1) src/cart.py rounds once\n(2) tests/test_cart.py is new\n(3) run test_rounding",
    "letters": "a) src/cart.py rounds once\nb) tests/test_cart.py is new\nc) run test_rounding",
    "levels": "1.1 src/cart.py rounds once\n1.2 tests/test_cart.py is new\n2.1 run test_rounding",
    "Roman": "I. Decisions\nsrc/cart.py rounds once\nII. Changes\ntests/test_cart.py\nIII. Next\nrun test_rounding",
    "underlined": "Decisions\n=========\nsrc/cart.py rounds once.\n\nChanges\n-------\ntests/test_cart.py is new.\n\nNext\n----\nrun test_rounding.",
    "labels": "Decision: src/cart.py rounds once, at the end\nChange: tests/test_cart.py\nNext: run test_rounding",
    "labels with dashes": "Decision – src/cart.py rounds once\nChange – tests/test_cart.py\nNext – run test_rounding",
    "Arabic": "١. القرار: src/cart.py\n٢. التغيير: tests/test_cart.py\n٣. التالي: test_rounding",
    "Devanagari": "१. निर्णय src/cart.py\n२. बदलाव tests/test_cart.py\n३. अगला test_rounding",
    "Thai": "๑. การตัดสินใจ src/cart.py\n๒. tests/test_cart.py\n๓. test_rounding",
    "circled": "① src/cart.py rounds once, at the end\n② tests/test_cart.py\n③ test_rounding",
    "HTML": "<h2>Decisions</h2>\n<p>src/cart.py rounds once</p>\n<h2>Changes</h2>\n<p>tests/test_cart.py</p>\n<h2>Next</h2>\n<p>test_rounding</p>",
    "HTML in one line": "<h2>Decisions</h2><ul><li>src/cart.py rounds once</li><li>tests/test_cart.py</li></ul><h2>Next</h2><p>test_rounding</p>",
    "XML": "<decisions>src/cart.py rounds once</decisions>\n<changes>tests/test_cart.py</changes>\n<next>test_rounding</next>",
    "JSON": '{"decisions": ["src/cart.py rounds once"], "changes": {"tests/test_cart.py": "new"}, "next": "run test_rounding"}',
    "JSON, fenced": '```json\n{\n  "summary": {\n    "decisions": "src/cart.py rounds once",\n    "changes": "tests/test_cart.py",\n    "next": "test_rounding"\n  }\n}\n```',
    "JSON lines": '{"decision": "src/cart.py rounds once"}\n{"change": "tests/test_cart.py"}\n{"next": "test_rounding"}',
    "JSON behind a line": 'Here it is\n{"decisions": "src/cart.py rounds once", "changes": "tests/test_cart.py", "next": "test_rounding"}',
    "YAML": "decisions:\n  - src/cart.py rounds once\nchanges:\n  - tests/test_cart.py\nnext: test_rounding",
    "blank lines": "Entscheidungen\n\nIn src/cart.py wird nur noch einmal gerundet, am Ende.\n\nÄnderungen\n\ntests/test_cart.py ist neu.\n\nWeiter\n\ntest_rounding laufen lassen.",
    "blocks": "Решения\nВ src/cart.py округляется один раз, в конце.\n\nИзменения\nФайл tests/test_cart.py добавлен.\n\nДалее\nЗапустить test_rounding.",
    "emoji": "✅ src/cart.py rounds once\n📝 tests/test_cart.py is new\n➡️ run test_rounding",
    "bold in a line": "**Decision:** src/cart.py rounds once\n**Change:** tests/test_cart.py\n**Next:** test_rounding",
    "fenced Markdown": "```markdown\n## Decisions\n- src/cart.py rounds once\n## Changes\n- tests/test_cart.py\n```",
    "AsciiDoc": "== Decisions\nsrc/cart.py rounds once\n== Changes\ntests/test_cart.py\n== Next\ntest_rounding",
    "Org": "* Decisions\nsrc/cart.py rounds once\n* Changes\ntests/test_cart.py\n* Next\ntest_rounding",
}  # fmt: skip
UNFORMED = {
    "prose": "The total is rounded once in src/cart.py. A test of it is in tests/test_cart.py: test_rounding. It is to be run.",
    "prose in lines": "The total is rounded once in src/cart.py now.\nThere is a test of it in tests/test_cart.py as well.\nIt is to be run again, with test_rounding as its name.",
    "questions in Spanish": "¿Qué archivo es src/cart.py?\n¿Qué prueba es tests/test_cart.py?\n¡Falta test_rounding!",
    "speech": "“I rounded it in src/cart.py.”\n“The test is tests/test_cart.py.”\n“Its name is test_rounding.”",
    "the same again": "- src/cart.py\n1. src/cart.py\n■ src/cart.py",
    "calls": '{"name": "read_file", "arguments": {"path": "src/cart.py"}}\n{"name": "run", "arguments": "pytest tests/test_cart.py -k test_rounding"}\n{"role": "assistant", "content": "I read it."}',
    "lines of code": "from src import cart\nreturn cart.total(prices)\nassert test_rounding",
    "a fence alone": "```\nsrc/cart.py tests/test_cart.py test_rounding\n```",
    "closing tags": "</a>\n</b>\n</c>\nsrc/cart.py",
    "dunder names": "__init__.py has src/cart.py\n__all__ has tests/test_cart.py\n__main__.py is for test_rounding",
    "rules": "---\n***\n===\n| |\n- \n1.\n#",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_summary_is_taken_in_every_form_that_sets_its_parts_apart(form):
    assert sections(FORMS[form]) >= 3
    assert judge(FORMS[form], tokens=80) == FORMS[form]


@pytest.mark.parametrize("form", UNFORMED)
def test_what_sets_nothing_apart_has_no_sections(form):
    assert sections(UNFORMED[form]) < 3
    with pytest.raises(BadSummary):
        judge(UNFORMED[form], tokens=400)


def test_records_of_the_conversation_are_no_summary_however_many():
    calls = "\n".join(
        f'{{"role":"assistant","calls":[{{"name":"read_file","arguments":{{"path":"src/cart.py","offset":{n}}}}}]}}'
        for n in range(8)
    )
    with pytest.raises(BadSummary, match="records"):
        judge(calls, prompt="Summarise.", budget=4000)


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
    assert not repetition_in("\n".join(f"- tests/unit/window/test_window_{n}.py was read" for n in range(100)))
    assert not repetition_in("\n".join(f'- read_file {{"path": "src/part{n}.py"}}' for n in range(200)))
    assert not repetition_in(SUMMARY)
    assert not repetition_in("決定：合計は最後に一度だけ丸める。変更：src/cart.py。次：テストを実行する。")
    for text in ("the same again " * 40, "- a.py\n- b.py\n" * 60, "完了しました。" * 100, "Done. " * 9, "。" * 400):
        assert repetition_in(text), text[:20]
    assert repetition_in(SUMMARY + "\n" + "- src/cart.py: total() sums first and rounds then.\n" * 40), (
        "a loop at the end"
    )


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


PROJECT = {
    "README.md": 3, "setup.py": 3, "src/utils.py": 3, "src/main.py": 3, "src/__init__.py": 1, "web/index.js": 2,
    "src/cart_totals.py": 5, "tests/test_cart_totals.py": 5, "docs/rounding_rules.md": 2,
}  # fmt: skip
ANOTHER = """## 1. Decisions
- The parser keeps a stack instead of recursion: lexer_state in syntax/tokens_stream.py grew too deep.
## 2. Changes
- README.md and setup.py name the new package; utils.py and main.py call build_tree, __init__.py exports it.
- index.js shows the tree; syntax/tree_nodes.py has NodeVisitor, tests/test_tree_nodes.py tests it.
## 3. Next step
- Make main.py read grammar_v2 and describe it in README.md."""


def project(paths):
    found = Source(4000)
    for path in paths:
        found.names.add({"role": "assistant", "content": "", "calls": [{"name": "edit_file", "arguments": path}]})
    return found


def of_project(text, paths=PROJECT, messages=None):
    messages = list(paths) if messages is None else messages
    return check_summary(text, project(paths), messages, prompt=PROMPT, before="", budget=600, count=COUNT)


def test_a_summary_of_another_project_is_refused_though_both_have_the_files_that_all_have():
    with pytest.raises(BadSummary, match="names 0 of"):
        of_project(ANOTHER)
    own = ANOTHER.replace("syntax/tree_nodes.py", "src/cart_totals.py").replace(
        "tests/test_tree_nodes.py", "docs/rounding_rules.md"
    )
    with pytest.raises(BadSummary, match="stand in no message"):
        of_project(own.replace("NodeVisitor", "NodeVisitor of syntax/walk_tree.py, syntax/fold_tree.py, v2_grammar"))
    ours = SUMMARY.replace("src/cart.py", "src/cart_totals.py").replace("test_cart.py", "test_cart_totals.py")
    assert of_project(ours, messages=[*PROJECT, "def test_rounding(): pass"]) == ours


def test_a_file_that_many_projects_have_counts_with_its_folder():
    plain = SUMMARY.replace("src/cart.py", "{}").replace("tests/test_cart.py", "a test").replace("test_rounding", "it")
    paths = ["src/utils.py", "src/main.py", "web/index.js", "web/app.js", "lib/views.py", "README.md"]
    with pytest.raises(BadSummary, match="names 0 of the 5"):
        of_project(plain.format("utils.py and main.py"), paths)
    assert of_project(plain.format("src/utils.py"), paths)


def test_a_name_that_two_folders_have_counts_with_its_folder():
    paths = ["a/x1/part_one.py", "b/x2/part_one.py", "a/x3/part_two.py", "c/part_three.py", "c/part_four.py"]
    forms = telling_forms(paths)
    assert forms["a/x1/part_one.py"] == ("a/x1/part_one.py", "x1/part_one.py")
    assert forms["c/part_four.py"] == ("c/part_four.py", "part_four.py")
    assert found_in(forms, "in part_one.py, x2/part_one.py, part_two.py and my_part_four.pyc") == [
        "b/x2/part_one.py",
        "a/x3/part_two.py",
    ]
    same = telling_forms(["src/one_part.py:12", "a/src/one_part.py", "work/src/one_part.py", "one_part.py"])
    assert all("one_part.py" in ways for ways in same.values()), "a diff and a mount show the same file"
    assert telling_forms(["README.md", "setup.py", "self.args", "os.path.join", "__init__.py"]) == {}


def test_the_demand_grows_with_the_names_of_the_source():
    assert [names_needed(known) for known in (4, 5, 19, 20, 59, 60, 180, 540, 4000)] == [0, 1, 1, 2, 2, 3, 4, 5, 6]
    paths = [f"src/module_{n}.py" for n in range(200)]
    text = (
        "## 1. Decisions\n- all go the same way, one after another\n## 2. Changes\n- {}\n## 3. Next step\n- on with it"
    )
    with pytest.raises(BadSummary, match="names 3 of the 200"):
        of_project(text.format("module_1.py, module_2.py, module_3.py"), paths)
    assert of_project(text.format("module_1.py, module_2.py, module_3.py, module_4.py"), paths)


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
    names = NameIndex()
    for number in range(3000):
        names.add({"role": "user", "content": f"file_{number}.py x{number}y and always/the_same.py"})
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
    both = merge_missing(SUMMARY, worse, 400, COUNT)
    for line in {*SUMMARY.splitlines(), *worse.splitlines()}:
        assert both.splitlines().count(line) == 1, "each line once, each below its heading"
    assert both.splitlines()[:2] == SUMMARY.splitlines()[:2]
    assert merge_missing(SUMMARY, SUMMARY, 400, COUNT) == SUMMARY
    assert merge_missing("", worse, 400, COUNT) == worse


def test_in_a_small_budget_the_lines_that_hold_what_was_lost_stand_first():
    old = "\n".join([SUMMARY, *(f"- it was said again that the work goes on, for the {n}th time" for n in range(30))])
    new = "## 1. Decisions\n- none since\n## 2. Changes\n- docs/cart.md tells of it now\n## 3. Next step\n- finish"
    budget = (COUNT(new) + COUNT(SUMMARY)) * 2 // 3 + 8
    found = merge_missing(old, new, budget, COUNT)
    assert COUNT(found) <= budget * 1.5
    assert [line for line in found.splitlines() if line in new.splitlines()] == new.splitlines()
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
        merge_missing(SUMMARY, worse, COUNT(SUMMARY) // 3, COUNT)


def test_a_number_and_a_quotation_count_as_what_is_named():
    old = "## 1. State\n- src/rows_of.py, src/cols_of.py and src/sums_of.py were read\n- rows in the ledger: 48,731\n- rule「トキソウ方式」 and `per tenant`"
    new = "## 1. State\n- src/rows_of.py, src/cols_of.py and src/sums_of.py were read, and nothing else"
    assert list(values_in("rows 48,731 of v2, 12 of 3.14 `x y` 「方式」 \"a b\" 'c'")) == [
        "48,731",
        "3.14",
        "x y",
        "方式",
        "a b",
    ]
    found = merge_missing(old, new, 400, COUNT)
    assert found.splitlines() == ["## 1. State", *old.splitlines()[2:], new.splitlines()[1]]
    assert merge_missing(found, new, 400, COUNT) == found, "once more, and nothing is said twice"
    enough = merge_missing(
        f"{old}\n- a_b_c d_e_f g_h_i j_k_l", f"{new}\n- a_b_c d_e_f g_h_i j_k_l", COUNT(new) + 60, COUNT
    )
    assert "48,731" in enough, "a text that has enough gets back what it lost, as far as its budget goes"


def test_a_line_that_both_have_stays_in_the_new_one_where_only_a_part_of_the_old_one_is_kept():
    filler = [f"- value_{n} = {n}, as it was {'read again ' * 8}" for n in range(200, 240)]
    lost = [f"- {word}_alpha of src/{word}_beta.py was tried" for word in ("one", "two", "six", "ten", "red", "hue")]
    both = "- rows in the ledger: 48,731"
    old = "\n".join(["## 1. Found", both, *lost, *filler])
    new = "\n".join(["## 1. Found", both, "- other_thing of src/new_thing.py", *lost[:3]])
    found = merge_missing(old, new, COUNT(old) // 3, COUNT)
    assert found.splitlines().count(both) == 1
    assert all(line in found for line in lost)


def test_a_family_of_names_that_differ_in_digits_counts_as_one():
    counted = weights(["part1.py", "part2.py", "part3.py", "part4.py", "src/cart.py"])
    assert counted["part1.py"] == 0.25
    assert counted["src/cart.py"] == 1


def test_lines_are_put_back_beyond_the_budget_only_where_the_new_one_has_too_little():
    names = [f"{word}_alpha" for word in ("one", "two", "six", "ten", "red", "hue", "sky", "sea", "ice", "oak")]
    old = "\n".join(
        ["## 1. Found", *(f"- {name} is read where the rows are summed, and its sign is kept" for name in names)]
    )

    def found(has, budget):
        new = "\n".join(["## 1. Found", *(f"- {name} stands" for name in names[:has]), "- and more was read"])
        return COUNT(merge_missing(old, new, budget, COUNT)), COUNT(new)

    tokens, alone = found(8, 100)
    assert alone < tokens <= 100
    tokens, alone = found(6, 110)
    assert alone < tokens <= 110, "three quarters of the names are reached within the budget"
    tokens, alone = found(6, 75)
    assert 75 < tokens <= 112, "they are not, so the tolerance is used"


@pytest.mark.parametrize(
    ("word", "text", "there"),
    [
        ("f1.py", "of1.py and f1.pyc, then f1.py", True),
        ("f1.py", "of1.py and f1.pyc", False),
        ("calc_total", "合計はcalc_totalが", True),
        ("48,731", "148,731 and 48,7310", False),
        ("トキソウ", "「トキソウ方式」", True),
        ("x", "x", True),
        ("x", "", False),
    ],
)
def test_a_name_stands_in_a_text_by_itself(word, text, there):
    assert stands_in(word, text) is there


@pytest.mark.parametrize(
    "text",
    [
        "Lo siento, no puedo ayudar con eso. En su lugar puedo:\n- explicar el código en general\n- revisar un archivo concreto\n- proponer una estructura para las pruebas",
        "请提供以下内容，我才能开始总结：\n一、完整的对话记录\n二、相关的源代码文件\n三、您希望的摘要长度",
        '{"error": {"message": "The summary is not available now", "type": "invalid_request", "param": "messages", "code": "no_summary"}}',
        "| section | content |\n|---|---|\n| decisions | none are known |\n| changes | none are known |\n| next step | none is known so far |",
        "<h2>Decisions</h2><p>To be filled in by the assistant.</p><h2>Changes</h2><p>To be filled in as well.</p><h2>Next</h2><p>To be seen later.</p>",
        "1. Read README.md\n2. Read main.py, utils.py and setup.py\n3. Call run and edit_file\n4. Look at index.js and package.json, then go on",
        "■ 決定\n特にありません。作業を続けてください。\n■ 変更\n特にありません。変更は必要ないと思われます。\n■ 次\n引き続き慎重に作業を進めてください。",
    ],
)
def test_what_has_sections_and_says_nothing_of_the_source_is_refused_in_any_form(text):
    assert sections(text) >= 3
    with pytest.raises(BadSummary, match="names 0 of"):
        judge(text, tokens=400)


@pytest.mark.parametrize("seed", [0, 65, 222, 360])
def test_a_larger_budget_never_refuses_what_a_smaller_one_takes(seed):
    choose = random.Random(seed)
    places = [f"src/mod_{n}/part_{n}.py" for n in range(30)]

    def written(many, numbers):
        return "\n".join(
            f"## {k}. Head {k}\n" + "\n".join(f"- did {p} with value {choose.randint(100, 9999)}" for p in many[n::3])
            for n, k in enumerate(numbers)
        )

    pool = choose.sample(places, choose.randint(6, 20))
    kept = choose.sample(pool, len(pool) // 3) + choose.sample(places, 3)
    old, new = written(pool, (0, 1, 2)), written(kept, [n + choose.choice((0, 5)) for n in range(3)])
    taken = []
    for budget in range(40, 400, 5):
        with suppress(BadSummary):
            taken.append((budget, COUNT(merge_missing(old, new, budget, COUNT))))
    assert [budget for budget, _ in taken] == list(range(taken[0][0], 400, 5))
    assert all(tokens <= budget * 1.5 for budget, tokens in taken)

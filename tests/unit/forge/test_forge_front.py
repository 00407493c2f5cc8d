"""Front matter: what is read, what is refused, and that a change touches one value only."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import assume, example, given, reject
from hypothesis import strategies as st

from agent.errors import ForgeError, IssueUnreadable
from agent.forge.local import front_matter

HAND_WRITTEN = """---
# who wants what
title:   'It''s broken'   # quoted on purpose
labels:
  - bug      # a real one
  - "coding agent"
  - 日本語
custom: {a: 1, b: [x, y]}
author: alice
state: open
text: |
  several
  lines
---
Body with --- inside
---
and  trailing   spaces
"""


def head_of(text, name="issues/1.md"):
    return front_matter.split(text.encode(), name)[0]


def relabelled(text, remove, add):
    data = text.encode()
    head, start = front_matter.split(data, "issues/1.md")
    return (head.with_items("labels", remove, add).text.encode() + data[start:]).decode()


def changed_lines(old, new):
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return [line for line in before if line not in after], [line for line in after if line not in before]


def test_values_are_read_as_they_are_written():
    head = head_of('---\ntitle: 404\nstate: on\nempty:\ntilde: ~\nquoted: "1"\ndraft: yes\n---\n')
    assert head.value("title") == "404"
    assert head.value("state") == "on"
    assert head.value("empty") is None
    assert head.value("tilde") is None
    assert head.value("missing") is None
    assert head.value("quoted") == "1"
    assert head.flag("draft", False) is True
    assert head.flag("missing", True) is True


def test_a_label_swap_on_a_hand_written_file_changes_one_line():
    new = relabelled(HAND_WRITTEN, ("coding agent",), "coding agent processing")
    assert changed_lines(HAND_WRITTEN, new) == (['  - "coding agent"\n'], ['  - "coding agent processing"\n'])


def test_a_label_is_added_as_its_own_line():
    new = relabelled(HAND_WRITTEN, (), "done: yes")
    assert changed_lines(HAND_WRITTEN, new) == ([], ['  - "done: yes"\n'])


def test_a_label_is_removed_with_its_line_only():
    new = relabelled(HAND_WRITTEN, ("bug",), None)
    assert changed_lines(HAND_WRITTEN, new) == (["  - bug      # a real one\n"], [])


@pytest.mark.parametrize(
    ("old", "remove", "add", "new"),
    [
        ("[bug, coding agent]", ("coding agent",), "done", "[bug, done]"),
        ("[bug, coding agent]", ("bug",), None, "[coding agent]"),
        ("[bug, coding agent]", ("coding agent",), None, "[bug]"),
        ("[bug , coding agent ] # c", ("bug",), None, "[coding agent ] # c"),
        ("[ 'bug', 'coding agent', ]", ("coding agent",), "it's", "[ 'bug', 'it''s', ]"),
        ('["coding agent"]', ("coding agent",), "done", '["done"]'),
        ("[a, b, c, b]", ("b",), "x", "[a, x, c]"),
        ("[a, b, c]", ("a", "b", "c"), None, "[]"),
        ("[]", (), "done", "[done]"),
        ("[ ]", (), "done", "[done ]"),
        ("", (), "coding agent", " [coding agent]"),
        ("   # none yet", (), "done", " [done]   # none yet"),
        ("~", (), "done", "[done]"),
        ("[a]", ("zzz",), None, "[a]"),
        ("[a]", (), "yes", '[a, "yes"]'),
        ("[a]", (), "x, y", '[a, "x, y"]'),
        ("[a]", (), "#1", '[a, "#1"]'),
        ("[a]", (), "why?", '[a, "why?"]'),
        ("\n- a", (), "why?", "\n- a\n- why?"),
        ("[a]", (), "日本語", "[a, 日本語]"),
        ("[a,\n  b]", ("b",), "c", "[a,\n  c]"),
        ("[a,\n  b]", ("a",), None, "[\n  b]"),
        ("\n- a\n- b # x", ("a",), "c", "\n- c\n- b # x"),
        ("\n- a\n- b # x", (), "c", "\n- a\n- b # x\n- c"),
        ("\n- a", ("a",), None, ""),
        ("\n-   a\n\n# between\n-   b", ("b",), "c", "\n-   a\n\n# between\n-   c"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lists_are_edited_in_the_way_they_are_written(old, remove, add, new, newline):
    frame = "---\ntitle: t\nlabels:{}\nzz: [1, {{a: b}}]\n---\nbody\n\r\n  end"
    space = "" if old[:1] in ("\n", "", " ") else " "
    before = frame.format(space + old).replace("\r", "").replace("\n", newline)
    after = frame.format((" " if new[:1] not in ("\n", "", " ") else "") + new).replace("\r", "").replace("\n", newline)
    if newline == "\r\n" and "[\n" in new:
        after = after.replace("[\r\n", "[\r\n")
    assert relabelled(before, remove, add) == after


def test_a_missing_list_is_added_as_the_last_key():
    assert relabelled("---\ntitle: t\n---\nb", (), "x") == "---\ntitle: t\nlabels: [x]\n---\nb"
    assert relabelled("---\r\ntitle: t\r\n---\r\nb", (), "x") == "---\r\ntitle: t\r\nlabels: [x]\r\n---\r\nb"


def test_a_byte_order_mark_and_dots_as_closing_line_stay():
    text = "\ufeff---\ntitle: t\nlabels: [a]\n...\nbody"
    assert relabelled(text, ("a",), "b") == "\ufeff---\ntitle: t\nlabels: [b]\n...\nbody"


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 1, "first line"),
        ("title: x\n", 1, "first line"),
        ("\n---\ntitle: x\n---\n", 1, "first line"),
        ("---\ntitle: x\n", None, "closing line"),
        ("---\ntitle: [x\nstate: open\n---\n", None, "not YAML"),
        (
            "---\ntitle: a: b\n---\n",
            2,
            "not YAML: mapping values are not allowed here; put a value that has a colon in it",
        ),
        ("---\nok: 1\n\tx: 1\n---\n", 3, "indent with spaces"),
        ("---\nt: \x01\n---\n", None, "not YAML"),
        ("---\n- a\n- b\n---\n", 2, "key: value"),
        ("---\n{a: b}\n---\n", 2, "key: value"),
        ("---\njust text\n---\n", 2, "key: value"),
        ("---\ntitle: a\nb: c\ntitle: d\n---\n", 4, "twice"),
        ("---\nx: " + "[\n " * 1000 + "\n---\n", None, "nested"),
        ("---\nx: " + "a" * 70000 + "\n---\n", None, "closing line"),
    ],
)
def test_what_cannot_be_read_names_file_line_and_what_is_expected(text, line, expected):
    with pytest.raises(IssueUnreadable) as caught:
        head_of(text)
    assert str(caught.value).startswith("issues/1.md:" + (f"{line}:" if line else ""))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        ("coding agent", 3),
        ("{a: b}", 3),
        ("[a, [b]]", 3),
        ("\n- a\n- {b: c}", 5),
        ("[a, ~]", 3),
        ("\n- a\n- |\n  b", 5),
        ("&x [a]", 3),
        ("[&x a]", 3),
        ("[!!str a]", 3),
        ("\n- a\n  b", 4),
    ],
)
def test_labels_that_are_no_plain_list_are_refused(labels, line):
    head = head_of(f"---\ntitle: t\nlabels: {labels}\n---\n")
    with pytest.raises(IssueUnreadable, match=rf"issues/1\.md:{line}: .*labels"):
        head.items("labels")


def test_bytes_that_are_not_utf8_are_named_with_their_line():
    with pytest.raises(IssueUnreadable, match=r"issues/1\.md:3: byte 0xe9 is not UTF-8"):
        front_matter.split(b"---\ntitle: t\nauthor: Ren\xe9\n---\n", "issues/1.md")


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("title: a # c", "b", "title: b # c"),
        ("title: 'a'", "it's", "title: 'it''s'"),
        ('title: "a"', "b", 'title: "b"'),
        ("title:", "b", "title: b"),
        ("title: # c", "b", "title: b # c"),
        ("title: a", "x: y", 'title: "x: y"'),
        ("title: a", "1.5", 'title: "1.5"'),
        ("title: a\n  b", "c", "title: c"),
        ("other: 1", "b", "other: 1\ntitle: b"),
    ],
)
def test_a_value_is_replaced_in_the_way_it_is_written(old, value, new):
    head = head_of(f"---\n{old}\n---\n")
    assert head.with_value("title", value).text == f"---\n{new}\n---\n"


def test_a_value_that_cannot_be_changed_alone_is_refused():
    head = head_of("---\ntitle: &t a\nother: *t\n---\n")
    with pytest.raises(ForgeError, match="cannot be changed"):
        head.with_value("title", "b")


LABEL = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)


@given(
    labels=st.lists(LABEL, max_size=4),
    remove=st.lists(st.integers(0, 3), max_size=3),
    add=st.none() | LABEL,
    style=st.sampled_from(['"', "'", None]),
    flow=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n"]),
)
@example(labels=["a"], remove=[0], add=None, style=None, flow=False, newline="\n")
@example(labels=[], remove=[], add=" ", style=None, flow=False, newline="\n")
def test_any_list_that_yaml_writes_ends_with_the_labels_that_were_meant(labels, remove, add, style, flow, newline):
    block = yaml.safe_dump(
        {"title": "t", "labels": labels, "z": {"k": [1, "x"]}},
        sort_keys=False,
        default_style=style,
        default_flow_style=None if flow else False,
        width=1 << 20,
        allow_unicode=True,
    )
    text = "---\n" + block + "---\nbody\n"
    if newline == "\r\n":
        text = text.replace("\n", "\r\n")
    try:
        head = head_of(text)
        old = head.items("labels")
    except IssueUnreadable:
        reject()  # a label of several lines, or a sign YAML does not print
    gone = tuple(old[index] for index in remove if index < len(old))
    new = head.with_items("labels", gone, add)
    kept = [label for label in old if label not in gone]
    assert sorted(new.items("labels")) == sorted(kept + ([add] if add is not None else []))
    assert new.value("title") == "t"
    assert new.text.endswith(f"---{newline}")


@given(text=st.text(max_size=60))
def test_no_head_ends_in_another_error(text):
    try:
        head = head_of(f"---\n{text}\n---\n")
        head.items("labels")
        head.with_items("labels", ("a",), "b")
    except ForgeError:
        pass


@given(title=st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_rendered_values_read_back(title):
    title = " ".join(title.split())
    assume(title)
    head = head_of(front_matter.render({"title": title, "draft": "true", "issue": "7"}))
    assert head.value("title") == title
    assert head.flag("draft", False) is True

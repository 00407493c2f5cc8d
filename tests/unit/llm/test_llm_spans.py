"""The check of new lines, copying, and lists made tidy."""

import io
import itertools
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import HistoryRefused
from agent.llm import wire_openai
from agent.llm.request_lines import Lines, lines
from agent.llm.role_alternation import normalized
from agent.llm.sse import events
from agent.message_list_check import Shape
from agent.values import Span

SYSTEM = {"role": "system", "content": "s"}
USER = {"role": "user", "content": "u"}
DONE = {"role": "assistant", "content": "done"}


def calling(*ids):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids],
    }


def result(one):
    return {"role": "tool", "tool_call_id": one, "content": "r"}


def write(path, *messages, mode="w"):
    with path.open(mode) as file:
        file.writelines(json.dumps(message, separators=(",", ":")) + "\n" for message in messages)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "current.jsonl"


def test_only_new_lines_are_looked_at(path):
    write(path, SYSTEM, {"role": "user", "content": "u" * 2000})
    checker = Lines()
    assert checker.check((Span(path),)).count == 2
    with path.open("r+b") as file:  # what was seen is not read again, but for its last bytes
        file.write(b"?" * 1000)
    write(path, calling("a"), result("a"), mode="a")
    assert checker.check((Span(path),)).count == 4


def test_a_last_line_without_a_newline_counts_and_may_go_on(path):
    path.write_text(json.dumps(SYSTEM) + "\n" + json.dumps(USER))
    checker = Lines()
    assert checker.check((Span(path),)).count == 2
    with path.open("a") as file:
        file.write("\n" + json.dumps(USER) + "\n")
    assert checker.check((Span(path),)).count == 3


def test_a_view_that_was_replaced_is_looked_at_from_the_start(path, tmp_path):
    write(path, SYSTEM, USER, calling("a"), result("a"))
    checker = Lines()
    assert checker.check((Span(path),)).ids == {"a"}
    write(tmp_path / "new", SYSTEM, USER, calling("a"), result("a")).rename(path)
    assert checker.check((Span(path),)).count == 4


def test_a_view_that_was_replaced_twice_may_have_its_old_inode_number(path):
    """A mask and a reset between two requests: the second file is renamed to where the first one's inode was."""
    lines = Lines()
    write(path, SYSTEM, USER, calling("a"), result("a"))
    lines.check((Span(path),))
    longer = {"role": "user", "content": "what is carried, and the word to go on " * 9}
    write(path, SYSTEM, longer, DONE, USER)  # the same inode, in place
    shape = lines.check((Span(path),))
    assert (shape.count, shape.ids) == (4, set())


def test_a_fault_is_found_again_and_not_forgotten(path):
    write(path, USER, result("a"))
    checker = Lines()
    for _ in range(2):
        with pytest.raises(HistoryRefused):
            checker.check((Span(path),))


def test_spans_of_several_files_are_one_conversation(path, tmp_path):
    other = write(tmp_path / "other.jsonl", calling("a"), result("a"))
    write(path, SYSTEM, USER, DONE)
    first = len(json.dumps(SYSTEM, separators=(",", ":"))) + 1
    second = first + len(json.dumps(USER, separators=(",", ":"))) + 1
    plan = (Span(path, 0, first), Span(path, first, second), Span(other))
    checker = Lines()
    assert checker.check(plan).count == 4
    out = io.BytesIO()
    wire_openai.copy(out, plan)
    assert json.loads(b"[" + out.getvalue() + b"]") == [SYSTEM, USER, calling("a"), result("a")]
    write(other, calling("b"), result("b"), mode="a")
    assert checker.check(plan).count == 6


def test_copying_leaves_out_empty_spans_and_a_missing_last_newline(path, tmp_path):
    write(path, USER)
    (tmp_path / "torn").write_text(json.dumps(DONE))
    (tmp_path / "empty").write_text("")
    out = io.BytesIO()
    wire_openai.copy(out, (Span(tmp_path / "empty"), Span(path), Span(tmp_path / "torn"), Span(tmp_path / "empty")))
    assert json.loads(b"[" + out.getvalue() + b"]") == [USER, DONE]


def test_copying_over_many_chunks_keeps_every_byte(path):
    messages = [{"role": "user", "content": "x\n" * 90_000 + str(number)} for number in range(12)]
    write(path, *messages)
    out = io.BytesIO()
    wire_openai.copy(out, (Span(path),))
    assert json.loads(b"[" + out.getvalue() + b"]") == messages
    assert len(out.getvalue()) == path.stat().st_size - 1


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 300),
    st.lists(st.tuples(st.lists(st.integers(0, 300), max_size=5), st.booleans()), min_size=1, max_size=3),
)
def test_copying_keeps_every_byte_wherever_a_block_ends(before, parts):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_openai, "BLOCK", 128)
        spans, wanted = [], []
        for number, (sizes, ends) in enumerate(parts):
            lines = [json.dumps("x" * size) for size in sizes]
            path = Path(folder) / f"{number}.jsonl"
            path.write_text("\n".join(lines) + ("\n" if ends and lines else ""))
            spans.append(Span(path))
            wanted += lines
        with (Path(folder) / "request.json").open("wb") as out:
            out.write(b"h" * before)
            wire_openai.copy(out, spans)
        assert (Path(folder) / "request.json").read_text() == "h" * before + ",".join(wanted)


def test_copying_says_when_the_view_got_shorter_meanwhile(path):
    write(path, USER)
    with pytest.raises(HistoryRefused, match="changed while it was read"):
        wire_openai.copy(io.BytesIO(), (Span(path, 0, path.stat().st_size + 1),))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([USER, DONE, "group"]), min_size=1, max_size=12), st.booleans())
def test_a_tidied_list_is_what_strict_templates_want(tmp_path_factory, kinds, begins):
    path = tmp_path_factory.mktemp("tidy") / "x.jsonl"
    messages = [SYSTEM] if begins else []
    for number, kind in enumerate(kinds):
        messages += [calling(f"c{number}"), result(f"c{number}")] if kind == "group" else [kind]
    write(path, *messages, USER)
    spans = (Span(path),)
    shape = Lines().check(spans)
    made = list(normalized(spans, shape, alternate=True))
    roles = [message["role"] for message in made]
    assert roles.count("system") == begins
    assert "system" not in roles[1:]
    assert next(role for role in roles if role != "system") == "user"
    assert all(message.get("content") or message.get("tool_calls") for message in made)
    assert all(not (a == b and a in ("user", "assistant")) for a, b in itertools.pairwise(roles))
    assert [message["tool_call_id"] for message in made if message["role"] == "tool"] == [
        message["tool_call_id"] for message in messages if message["role"] == "tool"
    ]
    write(path, *made)
    again = Lines().check(spans)
    assert again.tidy


def test_thousands_of_neighbours_become_one_message_in_their_order(path):
    said = [{"role": "user", "content": f"{number} " + "word " * 200} for number in range(5000)]
    write(path, SYSTEM, *said)
    shape = Lines().check((Span(path),))
    _, made = normalized((Span(path),), shape)
    assert made == {"role": "user", "content": "\n\n".join(one["content"] for one in said)}


def test_a_tidy_list_is_known_as_one(path):
    write(path, SYSTEM, USER, calling("a"), result("a"), DONE, USER)
    shape = Lines().check((Span(path),))
    assert shape.tidy
    assert list(lines((Span(path),))) == path.read_bytes().splitlines()


def test_the_empty_shape_is_tidy():
    assert Shape().tidy


def test_events_are_read_as_the_standard_says():
    stream = [b": comment", b"event: a", b"data: [1,", b"data:2]", b"", b"data: 3", b"id: 9", b"retry: 1", b"", b""]
    stream += [b"event: lost", b"", b'data: "last"']
    assert list(events(stream, "x")) == [("a", [1, 2]), ("", 3), ("", "last")]

"""`projection`: the view as a function of the facts, checked against a plain one that holds everything in memory."""

import os
from collections import Counter

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests_context import Characters

from agent.context import CompactionStore, MessageStore, SummaryStore, ToolStore, projection
from agent.context.carry_over_text import GO_ON, LEFT_OUT, carried_text
from agent.context.index import Cut, MessageIndex
from agent.errors import RecordRefused
from agent.values import Usage

TEXTS = st.text(st.characters(exclude_categories=()), max_size=40) | st.sampled_from(
    ["", " ", "ok", "日本語のテキスト"]
)


def rows(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def plain(folder):
    """The five rules, written down without regard to memory."""
    messages, summaries = rows(folder / "messages.jsonl"), {s["id"]: s for s in rows(folder / "summaries.jsonl")}
    compactions = rows(folder / "compactions.jsonl")
    cuts = [c for c in compactions if c["strategy"] != "mask"]
    masks = [c for c in compactions if c["strategy"] == "mask"]
    cut = cuts[-1] if cuts else {"end_seq": 0, "at_seq": 0, "summary_id": None, "carried": None, "strategy": ""}
    mask_end = masks[-1]["end_seq"] if masks else 0
    view = []
    for kind in ("system", "task"):
        found = [m for m in messages if m.get("kind") == kind]
        early = [m for m in found if m["seq"] <= cut["at_seq"]]
        if found:
            head = early[-1] if early else found[0]
            view.append({"role": head["role"], "content": head["content"]})
    rest = []
    for m in messages:
        if m["seq"] <= cut["end_seq"] or m.get("kind") in ("system", "task", "summary"):
            continue
        if m["role"] == "assistant" and not m.get("tool_calls") and not (m["content"] or "").strip():
            continue
        line = {"role": m["role"], "content": m["content"]}
        if m["role"] == "tool":
            text = projection.pointer(m)
            if m["seq"] <= mask_end and text and len(text) < len(m["content"]):
                line["content"] = text
            line = {"role": "tool", "tool_call_id": m["tool_call_id"], "content": line["content"]}
        if m.get("tool_calls"):
            line["tool_calls"] = [{k: c[k] for k in ("id", "type", "function")} for c in m["tool_calls"]]
        rest.append(line)
    speaks = bool(rest) and rest[0]["role"] == "user"
    said = [
        m["content"]
        for m in messages
        if m["seq"] <= cut["end_seq"] and m["role"] == "user" and m.get("kind") in (None, "comment")
    ]
    text = carried_text(cut["carried"], said[-1] if said and not speaks else None)
    summary = summaries.get(cut["summary_id"])
    if summary or cut["carried"] or cut["strategy"] == "reset":
        if summary:
            view.append({"role": "assistant", "content": summary["summary"]})
        elif text and not speaks:
            view.append({"role": "assistant", "content": "(Earlier messages were left out here to make room.)"})
        if not speaks and (summary or text):
            view.append({"role": "user", "content": f"{text}\n\n{GO_ON}" if text else GO_ON})
        elif speaks and text:
            rest[0] = {**rest[0], "content": f"{text}\n\n{rest[0]['content']}"}
    return view + rest


def legal(view):
    """What every wire asks of a list (docs/wire.md, "The request")."""
    waiting = []
    seen = set()
    for line in view:
        assert line["role"] in ("system", "user", "assistant", "tool")
        if line["role"] == "tool":
            assert line["tool_call_id"] in waiting
            waiting.remove(line["tool_call_id"])
            assert set(line) == {"role", "tool_call_id", "content"}
        else:
            assert not waiting, "something between calls and results"
            assert set(line) <= {"role", "content", "tool_calls"}
        ids = [call["id"] for call in line.get("tool_calls", ())]
        assert not seen & set(ids)
        assert len(ids) == len(set(ids))
        seen |= set(ids)
        waiting += ids
        assert line["content"] if not ids else line["content"] is None or line["content"].strip()
    return waiting


class Histories(RuleBasedStateMachine):
    """Random histories: messages of every kind, calls, compactions by every means, reopenings, harm to the view."""

    @initialize(folder=st.uuids())
    def start(self, folder):
        self.folder = self.root / str(folder)
        self.folder.mkdir(exist_ok=True)
        self.open()

    def open(self):
        config = {
            "context_storage": {"durability": "none"},
            "llm": {"provider": "openai", "openai": {"model": "m", "context_length": 1000, "api_key": "k"}},
        }
        self.tools = ToolStore(self.folder, durability="none")
        self.store = MessageStore(
            self.folder,
            config,
            counter=Characters(),
            summaries=SummaryStore(self.folder, durability="none"),
            compactions=CompactionStore(self.folder, durability="none"),
            tools=self.tools,
        )

    def close(self):
        self.store.close()
        for file in (self.tools.file, self.store.summaries.file, self.store.compactions.file):
            file.close()

    def teardown(self):
        if hasattr(self, "store"):
            self.close()

    idle = precondition(lambda self: not self.store.open_calls())

    @idle
    @rule(text=TEXTS, kind=st.sampled_from([None, None, "comment", "nudge", "task"]))
    def user(self, text, kind):
        self.store.add_message("user", text, kind=kind)

    @rule(text=TEXTS, kind=st.sampled_from([None, "system"]))
    def system(self, text, kind):
        if kind or not self.store.open_calls():
            self.store.add_message("system", text, kind=kind)

    @idle
    @rule(text=TEXTS | st.none(), usage=st.none() | st.builds(Usage, st.integers(0, 999), st.integers(0, 99)))
    def answer(self, text, usage):
        self.store.add_message("assistant", text, usage=usage)

    @idle
    @rule(text=TEXTS | st.none(), ids=st.lists(st.sampled_from(["", "a", "b", "call_1"]), min_size=1, max_size=3))
    def call(self, text, ids):
        calls = [{"id": i, "name": "f", "arguments": {"text": text}} for i in ids]
        self.store.add_message("assistant", text, tool_calls=calls, usage=Usage(10, 5))

    @precondition(lambda self: self.store.open_calls())
    @rule(text=TEXTS, long=st.booleans(), whole=st.booleans(), recorded=st.booleans())
    def result(self, text, long, whole, recorded):
        text = text + "x" * 200 if long else text
        if recorded:
            self.tools.add_tool_call("f", {}, text, "success", 1)
        self.store.add_message("tool", text, "f", output="outputs/0001.txt" if whole else None)

    @rule(back=st.integers(0, 6), text=TEXTS)
    def summarise(self, back, text):
        end = max(self.store.index.cut.end_seq, self.store.last_seq - back)
        waiting = self.store.open_calls()
        if text.strip():
            expected = self.store.forecast(strategy="summary", end_seq=end, summary=text, carried={"plan": ["go"]})
            self.store.compact(strategy="summary", end_seq=end, summary=text, carried={"plan": ["go"]})
            assert self.store.get_current_token_count() == expected
            assert self.store.compactions.last()["tokens_after"] == expected
            assert self.store.open_calls() == waiting
        else:
            with pytest.raises(RecordRefused, match="empty"):
                self.store.compact(strategy="summary", end_seq=end, summary=text)

    @rule(
        back=st.integers(0, 6),
        strategy=st.sampled_from(["window", "reset"]),
        keep=st.booleans(),
        carried=st.sampled_from([None, "a note", {"question": "why?"}]),
    )
    def leave_out(self, back, strategy, keep, carried):
        end = max(self.store.index.cut.end_seq, self.store.last_seq - back)
        waiting = self.store.open_calls()
        self.store.compact(strategy=strategy, end_seq=end, keep_summary=keep, carried=carried)
        assert self.store.open_calls() == waiting

    @rule(back=st.integers(0, 6))
    def mask(self, back):
        self.store.compact(strategy="mask", end_seq=max(0, self.store.last_seq - back))

    @idle
    @rule(keep=st.integers(0, 4), text=TEXTS.filter(str.strip), twice=st.booleans())
    def recreate(self, keep, text, twice):
        behind = [
            r
            for r in self.store.records(self.store.index.cut.end_seq + 1)
            if r.get("kind") not in ("system", "task", "summary")
        ]
        lines = self.store.current_path.read_bytes().splitlines(keepends=True)
        shown = sum(
            1 for r in behind if r["role"] != "assistant" or r.get("tool_calls") or (r["content"] or "").strip()
        )
        keep = min(keep, shown)
        path = self.folder / "unsummarized.jsonl"
        path.write_bytes(b"".join(lines[len(lines) - keep :]))
        if twice:
            self.store.summaries.add_summary(1, 2, text, 10, 5)
        before = self.store.summaries.count_summaries()
        self.store.recreate_current_context(text, 5, path)
        path.unlink()
        assert self.store.summaries.count_summaries() == before + (not twice)
        assert (
            self.store.current_path.read_bytes().splitlines()[-keep:][1:]
            == [line.strip() for line in lines[len(lines) - keep :]][1:]
            or keep == 0
        )

    @rule()
    def reopen(self):
        counts = self.store.get_current_token_count(), self.store.tokens_in_use(), self.store.totals()
        waiting = self.store.open_calls()
        self.close()
        self.open()
        assert not self.store.open_calls()
        if not waiting:
            assert self.store.repairs == []
            assert (self.store.get_current_token_count(), self.store.tokens_in_use(), self.store.totals()) == counts

    @rule(cut=st.integers(0, 400))
    def harm_the_view(self, cut):
        self.close()
        data = self.store.current_path.read_bytes()
        self.store.current_path.write_bytes(data[:cut])
        self.open()

    @invariant()
    def the_view_is_what_the_facts_say(self):
        if not hasattr(self, "store"):
            return
        data = self.store.current_path.read_bytes()
        out = self.folder / "derived.jsonl"
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        assert projection.derive(self.folder, descriptor) == len(data)
        os.close(descriptor)
        assert data == out.read_bytes()
        view = [orjson.loads(line) for line in data.splitlines()]
        assert view == plain(self.folder)
        assert {call["id"] for call in self.store.open_calls()} == set(legal(view))

    @invariant()
    def numbers_have_no_gaps_and_tokens_are_the_sum(self):
        if not hasattr(self, "store"):
            return
        seqs = [record["seq"] for record in rows(self.folder / "messages.jsonl")]
        assert seqs == list(range(1, len(seqs) + 1))
        assert self.store.count_messages() == self.store.last_seq == len(seqs)
        counted = sum(tokens for _, tokens in projection.lines(self.folder, count=len))
        assert self.store.get_current_token_count() == counted


@pytest.fixture(autouse=True)
def _root(tmp_path):
    Histories.root = tmp_path


class TestHistories(Histories.TestCase):
    settings = settings(max_examples=int(os.environ.get("HISTORIES", "10")), stateful_step_count=25, deadline=None)


def test_derive_writes_to_a_descriptor_too(tmp_path):
    (tmp_path / "messages.jsonl").write_bytes(b'{"seq":1,"role":"user","content":"x","kind":"task"}\n')
    read, write = os.pipe()
    assert projection.derive(tmp_path, write) == 30
    os.close(write)
    assert os.read(read, 100) == b'{"role":"user","content":"x"}\n'
    os.close(read)


def test_an_empty_folder_has_an_empty_view(tmp_path):
    assert list(projection.lines(tmp_path)) == []


def test_a_pointer_names_the_file_or_the_line_of_tools_jsonl(tmp_path):
    assert 'read_output("outputs/0007.txt")' in projection.pointer({"output": "outputs/0007.txt", "tool_seq": 41})
    assert 'read_output("tools:41")' in projection.pointer({"tool_seq": 41})
    assert projection.pointer({}) is None


def test_a_damaged_summary_is_read_from_its_copy(tmp_path):
    lines = [
        {"seq": 1, "role": "user", "content": "t", "kind": "task"},
        {"seq": 2, "role": "assistant", "content": "old"},
        {"seq": 3, "role": "assistant", "content": "SUM", "kind": "summary", "tokens": 3},
    ]
    (tmp_path / "messages.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    (tmp_path / "summaries.jsonl").write_bytes(b"\0\0\0\n")
    (tmp_path / "compactions.jsonl").write_bytes(
        orjson.dumps({"id": 1, "strategy": "summary", "start_seq": 1, "end_seq": 2, "at_seq": 3, "summary_id": 1})
        + b"\n"
    )
    assert [orjson.loads(data)["content"] for data, _ in projection.lines(tmp_path)] == ["t", "SUM", GO_ON]


@pytest.mark.parametrize("seq", [1, 2, 3, 5])
def test_a_line_that_was_damaged_after_it_was_indexed_is_not_shown_as_the_next_one(tmp_path, seq):
    lines = [
        {"seq": 1, "role": "system", "content": "the rules", "kind": "system"},
        {"seq": 2, "role": "user", "content": "the briefing", "kind": "task"},
        {"seq": 3, "role": "user", "content": "a comment"},
        {"seq": 4, "role": "assistant", "content": "old"},
        {"seq": 5, "role": "assistant", "content": "the summary", "kind": "summary", "tokens": 3},
        {"seq": 6, "role": "assistant", "content": "new"},
    ]
    path = tmp_path / "messages.jsonl"
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    (tmp_path / "summaries.jsonl").write_bytes(b"\0\0\0\n")
    cut = {
        "id": 1,
        "strategy": "summary",
        "start_seq": 3,
        "end_seq": 4,
        "at_seq": 5,
        "summary_id": 1,
        "carried": "plan",
    }
    (tmp_path / "compactions.jsonl").write_bytes(orjson.dumps(cut) + b"\n")
    survey = MessageIndex.read(path, Cut.read(tmp_path / "compactions.jsonl"))

    def shown():
        view = projection.lines(tmp_path, survey=survey, cut=survey.cut)
        return "\n".join(orjson.loads(data)["content"] for data, _ in view)

    whole = shown()
    gone = lines[seq - 1]["content"]
    assert gone in whole
    path.write_bytes(path.read_bytes().replace(b'{"seq":%d' % seq, b'!"seq":%d' % seq))
    left = shown()
    assert gone not in left
    more = Counter(left.splitlines()) - Counter([*whole.splitlines(), LEFT_OUT])
    assert not more, "no other message is in its place"


@pytest.mark.parametrize(
    ("carried", "words", "text"),
    [
        (None, None, ""),
        ({}, None, ""),
        ("as it is", None, "as it is"),
        (
            {"plan": [{"text": "a", "status": "done"}, {"step": "b", "done": False}, "c"]},
            None,
            "Plan:\n- [done] a\n- [open] b\n- c",
        ),
        ({"changed": ["x.py"], "read": ["y.py"], "empty": []}, None, "Files read:\n- y.py\n\nFiles changed:\n- x.py"),
        ({"question": "why?"}, "because", "Open question:\nwhy?\n\nWhat the person said last, word for word:\nbecause"),
        ({"words": "mine"}, "theirs", "What the person said last, word for word:\nmine"),
        ({"open_ends": {"a": 1}}, None, "Open ends:\n- a: 1"),
    ],
)
def test_what_is_carried_reads_as_headings(carried, words, text):
    assert carried_text(carried, words) == text

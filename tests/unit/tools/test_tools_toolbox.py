"""The toolbox: schemas, arguments, caps, masks, faults, state."""

import json
import os
import sys

import pytest

from agent import proc
from agent.config import settings_of
from agent.context import MessageStore
from agent.errors import DiskError, SandboxUnavailable, ToolError
from agent.tools.base import TOOLS, RawResult, schema
from agent.values import Contact, End, Finished

NAMES = [
    "list_files",
    "read_file",
    "search_text",
    "edit_file",
    "write_file",
    "run_command",
    "read_output",
    "update_plan",
    "ask_user",
    "finish",
]


class Odd:
    """A tool from elsewhere."""

    name = "odd"
    description = "Does odd things."
    parameters = schema((), how={"type": "string"})

    def run(self, arguments):
        how = arguments.get("how", "")
        if how == "bug":
            raise KeyError("inner")
        if how == "disk":
            raise DiskError("cannot write x: the disk is full")
        if how == "tool":
            raise ToolError("not like that: s3cr3t-value")
        return RawResult(how)


def test_the_tools_are_exactly_these_in_this_order(box):
    assert list(TOOLS.entries) == NAMES
    schemas = box.schemas()
    assert [one["function"]["name"] for one in schemas] == NAMES
    assert json.dumps(schemas) == json.dumps(box.schemas())
    for one in schemas:
        assert one["type"] == "function"
        assert one["function"]["parameters"]["additionalProperties"] is False


def test_the_arguments_are_those_of_the_design(box):
    takes = {one["function"]["name"]: list(one["function"]["parameters"]["properties"]) for one in box.schemas()}
    assert takes == {
        "list_files": ["path", "pattern"],
        "read_file": ["path", "offset", "limit"],
        "search_text": ["pattern", "path", "glob"],
        "edit_file": ["path", "old_text", "new_text", "replace_all"],
        "write_file": ["path", "content"],
        "run_command": ["command", "timeout"],
        "read_output": ["name", "offset", "limit"],
        "update_plan": ["items"],
        "ask_user": ["question"],
        "finish": ["title", "summary", "answers"],
    }


def test_all_schemas_together_stay_small(box):
    assert len(json.dumps(box.schemas())) < 4500


def test_an_unknown_tool_lists_the_tools(box):
    result = box.run("open_file", {})
    assert result.status == "error"
    assert "open_file" in result.content
    for name in NAMES:
        assert name in result.content


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("read_file", {}, ["path missing", "offset (optional)"]),
        ("read_file", {"path": 7}, ["path must be of type string", "7"]),
        ("read_file", {"path": "a", "offset": 0}, ["offset must be at least 1", "0"]),
        ("read_file", {"path": "a", "offset": "first"}, ["offset", "integer", "first"]),
        ("read_file", {"path": "a", "ofset": 3}, ["ofset not known", "did you mean offset"]),
        ("edit_file", {"path": "a", "old_text": "", "new_text": "x"}, ["old_text must not be empty"]),
        (
            "update_plan",
            {"items": [{"text": "a", "status": "finished"}]},
            ["items.0.status", "in_progress", "finished"],
        ),
        ("update_plan", {"items": [{"text": "a"}]}, ["items.0.status missing"]),
        ("update_plan", {"items": [{"text": "a", "status": "done"}] * 51}, ["51 items", "at most 50"]),
        ("read_file", ["a"], ["must be an object", '["a"]']),
    ],
)
def test_wrong_arguments_are_told_with_name_found_and_allowed(box, name, arguments, words):
    result = box.run(name, arguments)
    assert result.status == "error"
    for word in words:
        assert word in result.content
    assert result.error == result.content


def test_lossless_repairs_are_made(box, tree):
    (tree / "a.txt").write_text("1\n2\n3\n")
    result = box.run("read_file", {"path": "a.txt", "offset": "2", "limit": 1.0})
    assert "lines 2-2 of 3" in result.content
    assert box.run("read_file", {"path": "a.txt", "offset": None}).status == "success"


@pytest.mark.parametrize(
    ("kind", "given", "repaired"),
    [
        ({"type": ["string", "null"]}, "a", "a"),
        ({"type": ["string", "null"]}, None, None),
        ({"type": ["string", "integer"]}, "5", "5"),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"type": ["array", "null"], "items": True}, "[1]", [1]),
        ({"type": "array", "items": True}, ["1"], ["1"]),
        (True, "5", "5"),
        (True, None, None),
    ],
)
def test_a_schema_of_a_server_may_allow_several_types_or_any_value(make_box, kind, given, repaired):
    odd = Odd()
    odd.parameters = {"type": "object", "properties": {"value": kind}}
    box = make_box(extra_tools=[odd])
    assert box.run("odd", {"value": given}).status == "success"
    assert box.repair_arguments("odd", {"value": given}) == {"value": repaired}


def test_a_number_with_two_signs_is_refused_not_a_crash(box, tree):
    (tree / "a.txt").write_text("1\n")
    result = box.run("read_file", {"path": "a.txt", "offset": "--5"})
    assert result.status == "error"
    assert "offset must be of type integer" in result.content


def test_deeply_nested_arguments_are_refused_not_a_crash(box):
    nested: list = []
    for _ in range(5000):
        nested = [nested]
    assert box.run("update_plan", {"items": nested}).status == "error"


def test_a_fault_of_a_tool_is_a_result_and_a_full_disk_is_raised(make_box):
    box = make_box(extra_tools=[Odd()])
    assert box.schemas()[-1]["function"]["name"] == "odd"
    result = box.run("odd", {"how": "bug"})
    assert result.status == "error"
    assert "KeyError" in result.content
    assert box.run("odd", {"how": "tool"}).content == "not like that: ***"
    with pytest.raises(DiskError):
        box.run("odd", {"how": "disk"})


def test_lone_surrogates_never_get_through(make_box, tree):
    box = make_box(extra_tools=[Odd()])
    box.run("odd", {"how": "\udc80"}).content.encode()
    box.run("no\udc80", {}).content.encode()
    assert box.run("write_file", {"path": "a.txt", "content": "x\ud800y"}).status == "success"
    assert (tree / "a.txt").read_text() == "x\\ud800y"


def test_secrets_are_masked_in_results_and_in_stored_output(box, tree, tmp_path):
    (tree / "a").write_text("key = s3cr3t-value\n")
    assert "***" in box.run("read_file", {"path": "a"}).content
    result = box.run("run_command", {"command": "yes s3cr3t-value | head -n 30000"})
    assert result.output is not None
    stored = (tmp_path / result.output).read_text()
    assert "s3cr3t" not in stored
    assert stored == "***\n" * 30000
    assert "s3cr3t" not in result.content


def test_long_output_is_capped_and_kept_whole(make_box, tmp_path):
    box = make_box(cap_chars=4000)
    result = box.run("run_command", {"command": "seq 1 100000"})
    assert len(result.content.encode()) <= 4000
    assert result.content.startswith("[exit code 0]\n1\n2\n")
    assert result.content.endswith("\n100000")
    assert result.output == "outputs/0001.txt"
    assert 'read_output("outputs/0001.txt", offset=' in result.content
    stored = tmp_path / result.output
    assert stored.read_text() == "".join(f"{number}\n" for number in range(1, 100001))
    assert stored.stat().st_mode & 0o777 == 0o600
    assert not list(stored.parent.glob("*.spool"))


def test_an_output_that_is_longer_than_what_is_kept_of_one_is_not_called_whole(make_box, tmp_path):
    def run(command, timeout, spool):
        argv = ["/bin/sh", "-c", command]
        env = {"PATH": os.defpath}
        return proc.run(argv, env=env, timeout=timeout, cwd=tmp_path, spool=spool, cap=20_000, spool_cap=100_000)

    result = make_box(cap_chars=4000, run=run).run("run_command", {"command": "seq 1 100000"})
    kept = (tmp_path / result.output).stat().st_size
    assert 100_000 <= kept < 200_000
    assert "588.9 kB in all, only the first " in result.content


def test_the_stated_offset_continues_where_the_head_ended(make_box):
    box = make_box(cap_chars=4000)
    content = box.run("run_command", {"command": "seq 1 100000"}).content
    head, notice, _ = content.partition("\n[… ")
    offset = int(_[_.index("offset=") + 7 :].split(")")[0]) if notice else 0
    last = int(head.rsplit("\n", 1)[1])
    page = box.run("read_output", {"name": "outputs/0001.txt", "offset": offset, "limit": 2}).content
    assert page.split("\n")[1:] == [str(last + 1), str(last + 2)]


def test_one_line_of_five_megabytes_is_shortened_and_can_be_paged(make_box):
    box = make_box(cap_chars=8000)
    result = box.run("run_command", {"command": "head -c 5000000 /dev/zero | tr '\\0' x"})
    assert len(result.content) < 8000
    assert "left out" in result.content
    page = box.run("read_output", {"name": result.output, "offset": 4999, "limit": 5}).content
    assert page.startswith("[outputs/0001.txt: lines 4999-5000]")
    assert len(page.split("\n")[1]) == 1000


def test_japanese_is_capped_by_bytes_and_cut_at_characters(make_box):
    box = make_box(cap_chars=4000)
    result = box.run("run_command", {"command": "for i in $(seq 2000); do echo 漢字かな; done"})
    assert len(result.content.encode()) <= 4000
    assert "�" not in result.content
    assert "\\x" not in result.content


def test_numbers_of_outputs_go_on_after_a_restart(make_box, tmp_path):
    assert make_box(cap_chars=2000).run("run_command", {"command": "seq 5000"}).output == "outputs/0001.txt"
    (tmp_path / "outputs" / "0002.spool").write_bytes(b"left by a kill")
    box = make_box(cap_chars=2000)
    assert not (tmp_path / "outputs" / "0002.spool").exists()
    assert box.run("run_command", {"command": "seq 5000"}).output == "outputs/0002.txt"


def test_read_output_reads_recorded_results_and_nothing_else(box, tmp_path):
    assert box.run("read_output", {"name": "tools:41"}).content == "[tools:41: lines 1-2]\nrecorded\nresult"
    assert box.run("read_output", {"name": "tools:42"}).status == "error"
    (tmp_path / "metadata.json").write_text("secret")
    for name in ("metadata.json", "outputs/../metadata.json", "outputs/0009.txt", "/etc/passwd", "outputs/1.txt"):
        result = box.run("read_output", {"name": name})
        assert result.status == "error"
        assert "secret" not in result.content


def test_read_output_shows_messages_that_may_be_shortened_and_no_others(make_box, tmp_path):
    llm = {"provider": "ollama", "ollama": {"model": "phi4", "context_length": 8192}}
    store = MessageStore(tmp_path, {"llm": llm})
    for role, text, kind in (
        ("system", "rules", None),
        ("user", "briefing", None),
        ("user", "first line\nsecond line", "comment"),
        ("user", "a hint", "nudge"),
        ("assistant", "an answer", None),
        ("user", "plain words", None),
    ):
        store.add_message(role, text, kind=kind)
    box = make_box(message=store.text_of)
    shown = box.run("read_output", {"name": "messages:3", "offset": 2})
    assert shown.content == "[messages:3: lines 2-2]\nsecond line"
    assert box.run("read_output", {"name": "messages:6"}).content.endswith("plain words")
    assert box.run("read_output", {"name": "messages:4"}).content.endswith("a hint")
    for seq in (1, 2, 5, 7, 99):
        result = box.run("read_output", {"name": f"messages:{seq}"})
        assert result.status == "error"
        assert "no such message" in result.content


def test_the_window_sets_the_cap():
    from agent.tools.toolbox import room_of

    assert [room_of(window) for window in (1000, 4096, 32_768, 200_000)] == [1000, 1536, 12_288, 16_000]


def test_commands_tell_their_exit_code_and_keep_partial_output(box):
    result = box.run("run_command", {"command": "echo before; exit 3"})
    assert result.content == "[exit code 3]\nbefore"
    assert result.status == "success"
    result = box.run("run_command", {"command": "echo before; sleep 30", "timeout": 1})
    assert result.status == "error"
    assert "ended after 1 s" in result.content
    assert "before" in result.content
    assert box.run("run_command", {"command": "true"}).content == "[exit code 0]\n(no output)"


def test_a_command_that_was_interrupted_is_not_called_too_slow(make_box, tree):
    def interrupted(command, timeout, spool):
        argv = ["/bin/sh", "-c", command]
        seen = (tree / "begun").exists
        return proc.run(argv, env={"PATH": os.defpath}, timeout=timeout, cwd=tree, spool=spool, stop=seen)

    box = make_box(run=interrupted)
    result = box.run("run_command", {"command": "echo before; touch begun; sleep 60", "timeout": 90})
    assert result.status == "error"
    assert "interrupted from outside" in result.content
    assert "90 s" not in result.content
    assert "before\n" in f"{result.content}\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (137, "signal SIGKILL: ended from outside, most often because the memory limit"),
        (152, "signal SIGXCPU: the CPU time limit"),
        (-25, "signal SIGXFSZ: a file grew"),
        (143, "signal SIGTERM"),
        (200, "[exit code 200]"),
        (255, "[exit code 255]"),
    ],
)
def test_signals_are_named(make_box, code, words):
    box = make_box(run=lambda command, timeout, spool: Finished(code, b"", 0.1))
    assert words in box.run("run_command", {"command": "x"}).content


def test_odd_bytes_escapes_and_progress_bars_are_made_readable(box):
    command = r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\nx\377y\n'"
    assert box.run("run_command", {"command": command}).content == "[exit code 0]\nred\n100%\nx\\xffy\n".rstrip("\n")


def test_binary_output_is_stored_and_not_shown_and_nul_ends_names(box):
    png = r"printf '\211PNG\r\n\032\n\0\0\0\377\377\377'"
    result = box.run("run_command", {"command": png})
    assert "(binary output, PNG image; it is not shown." in result.content
    assert result.output == "outputs/0001.txt"
    assert r"\x89PNG" in box.run("read_output", {"name": result.output}).content
    assert box.run("run_command", {"command": r"printf 'a b\0ü\0'"}).content == "[exit code 0]\na b\nü"


def test_long_binary_output_is_stored_whole(box):
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 400)"
    result = box.run("run_command", {"command": f"{sys.executable} -c '{code}'"})
    assert "binary output" in result.content
    stored = (box.outputs.folder.parent / result.output).read_bytes()
    assert stored.count(b"\\x00") == stored.count(b"\\x0d") == stored.count(b"\\xff") == 400
    assert stored.isascii()


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (r"start\0\377\nFAILED test_a\n", "start\\x00\\xff\nFAILED test_a"),
        (r"\377\377\nFAILED test_a\n", "\\xff\\xff\nFAILED test_a"),
        (r"\037\213\nFAILED test_a of this suite\n", "FAILED test_a"),
        (r"\211PNG\r\n\032\nFAILED test_a of this suite\n", "FAILED test_a"),
    ],
)
def test_text_with_some_odd_bytes_is_text(box, printed, shown):
    assert shown in box.run("run_command", {"command": f"printf '{printed}'; exit 1"}).content


def test_lists_and_objects_that_come_as_json_text_are_taken_and_recorded_as_such(box):
    items = '[{"text": "look", "status": "done"}, "{\\"text\\": \\"mend\\", \\"status\\": \\"pending\\"}"]'
    result = box.run("update_plan", {"items": items})
    assert result.content == "[plan noted: 1 of 2 done]"
    assert box.plan() == [{"text": "look", "status": "done"}, {"text": "mend", "status": "pending"}]
    assert box.repair_arguments("update_plan", {"items": items}) == {"items": box.plan()}
    for wrong in ('{"text": "look"}', "[1, 2", '["x"]', "[" * 100_000):
        assert box.run("update_plan", {"items": wrong}).status == "error"
    assert box.plan()[0]["text"] == "look"
    # A text stays a text, whatever it looks like.
    assert box.run("write_file", {"path": "a.json", "content": "[1]"}).status == "success"


def test_without_a_sandbox_the_result_says_what_to_do(make_box):
    def refuse(command, timeout, spool):
        raise SandboxUnavailable("no user namespaces; ask an administrator")

    for run in (refuse, None):
        result = make_box(run=run).run("run_command", {"command": "ls"})
        assert result.status == "error"
        assert "Go on without commands" in result.content
    assert "administrator" in make_box(run=refuse).run("run_command", {"command": "ls"}).content


def test_the_time_limit_is_held_to_its_maximum(make_box):
    seen = []

    def run(command, timeout, spool):
        seen.append(timeout)
        return Finished(0, b"", 0.1)

    box = make_box(run=run, max_timeout=600)
    box.run("run_command", {"command": "x", "timeout": 99_999})
    box.run("run_command", {"command": "x"})
    assert seen == [600, 120]
    assert box.run("run_command", {"command": "a\0b"}).status == "error"


def test_plan_question_and_end(box):
    items = [{"text": "look", "status": "done"}, {"text": "change", "status": "in_progress"}]
    assert box.run("update_plan", {"items": items}).content == "[plan noted: 1 of 2 done]"
    assert box.plan() == items
    asked = box.run("ask_user", {"question": "Which one? <!-- makimono:12345678-aaaa:final -->"}).outcome
    assert (asked.end, asked.summary) == (End.ASKED, "Which one?")
    done = box.run("finish", {"title": "Fix\nthe   thing", "summary": "Done."}).outcome
    assert (done.end, done.title, done.summary) == (End.FINISHED, "Fix the thing", "Done.")
    assert box.run("finish", {"title": " ", "summary": "x"}).status == "error"


def test_state_lives_and_is_restored_alike(box, make_box, tree):
    (tree / "a").write_text("one\n")
    records = []
    for name, arguments in [
        ("read_file", {"path": "/work/a"}),
        ("read_file", {"path": "missing"}),
        ("edit_file", {"path": "a", "old_text": "one", "new_text": "two"}),
        ("write_file", {"path": "b/c", "content": "x"}),
        ("update_plan", {"items": [{"text": "x", "status": "pending"}]}),
        ("update_plan", {"items": "wrong"}),
        ("finish", {"title": "t", "summary": "s"}),
    ]:
        result = box.run(name, arguments)
        records.append({"tool": name, "args": arguments, "status": result.status, "result": result.content})
    state = {"plan": [{"text": "x", "status": "pending"}], "files_read": ["a"], "files_changed": ["a", "b/c"]}
    assert box.state() == state
    again = make_box()
    assert again.restored_outcome() is None
    again.restore(records)
    assert again.state() == state
    assert again.restored_outcome().end == End.FINISHED
    again.restore(records[:1])
    assert again.restored_outcome() is None


def test_the_list_of_files_in_the_state_is_bounded(box):
    for number in range(120):
        box.run("write_file", {"path": f"f{number}", "content": "x"})
    assert box.state()["files_changed"] == [f"f{number}" for number in range(70, 120)]


def test_which_hosts_a_command_reaches_is_in_its_description_and_a_refusal_above_its_output(make_box):
    def described(*network):
        box = make_box(settings=settings_of({"sandbox": {"network": list(network)}}))
        return next(one["function"] for one in box.schemas() if one["function"]["name"] == "run_command")["description"]

    assert "isolated, without network or input;" in described()
    assert "reaches only a.org, *.b.org by http and https (HTTP_PROXY is set);" in described("a.org", "*.b.org")
    assert "reaches any public host by http" in described("a.org", "*")
    assert "h9.org and 2 more by" in described(*(f"h{number}.org" for number in range(12)))
    refused = [Contact(f"h{number}.org", 443, 1, refused=f"h{number}.org is not in the list") for number in range(12)]

    def run(*_):
        return Finished(1, b"no", 0.1, contacts=(Contact("a.org", 443, 1, 10, 10), *refused, *refused))

    head = make_box(run=run).run("run_command", {"command": "x"}).content.splitlines()[0]
    assert head.startswith("[exit code 1; the network refused: h0.org is not in the list; h1.org")
    assert head.endswith("h9.org is not in the list; and 2 more]")

"""Large things that come at once end no task: the whole program against a server that enforces its window by its own
count, and counts the answer that is asked for in it.

Parallel whole reads, a first read where less is loaded than is configured, a huge comment, a huge output of a check, a
long old discussion, rules in Japanese.
"""

import json
import re

import pytest
from flow_home import FlowHome
from length import either
from strict_server import StrictServer, cost, tokens

CODE = "".join(f"def value_{n}(prices):\n    return sum(prices) + {n}  # 価格の合計 {n}\n" for n in range(900))
FILES = {f"src/part{n}.py": CODE.replace("value", f"part{n}_value") for n in range(12)}
POINTER = re.compile(r'read_output\("([^"]+)"')


def done(messages, number):
    return "All is read.", [("finish", {"title": "Read", "summary": "Everything was read."})]


def run(
    folder,
    window,
    play,
    *,
    configured=None,
    tells=False,
    files=FILES,
    model="phi4",
    output=None,
    config="",
    before=None,
):
    """One issue from begin to end; (home, server, requests)."""
    requests = []
    server = StrictServer(window, play, tells=tells, on_request=lambda body, _raw: requests.append(body))
    home = FlowHome(folder, server=server, url=server.url.removesuffix("/v1"), config=config)
    home.commit("default", files)
    text = home.config.read_text()
    text = text.replace("model: m, context_length: 32000", f"model: {model}, context_length: {configured or window}")
    if output:
        text = text.replace("model: ", f"max_output_tokens: {output}, model: ")
    home.config.write_text(text)
    home.issue(1, "Read everything", "Read all parts and tell what they have in common.")
    if before is not None:
        before(home)
    _, out = home.run("run", "--once")
    assert "Traceback" not in out, out
    return home, server, requests


def finished(home, server):
    """The task came to its end, and nothing was ever refused."""
    row = home.row(1)
    assert (row["status"], row["error_code"]) == ("completed", None), home.said(1)
    assert server.refused == []
    return home.lines(1, "messages.jsonl")


@pytest.mark.parametrize(
    ("window", "calls"),
    either([(4096, 6), (32_768, 6)], [(4096, 6), (8192, 6), (16_384, 6), (32_768, 6), (65_536, 12)]),
)
def test_parallel_whole_reads_end_no_task(tmp_path, window, calls):
    def play(messages, number):
        if number < 3:
            return "", [("read_file", {"path": f"src/part{n}.py"}) for n in range(calls)]
        return done(messages, number)

    home, server, requests = run(tmp_path, window, play)
    try:
        records = finished(home, server)
        results = [one for one in records if one["role"] == "tool"]
        assert len(results) == 3 * calls + 1
        shown = [one for one in requests[1]["messages"] if one["role"] == "tool"]
        assert len(shown) == calls
        assert all(f"src/part{n}.py: lines 1-" in one["content"] for n, one in enumerate(shown))
        sizes = [tokens(one["content"]) for one in shown]
        assert sum(sizes) <= max(window // 2, calls * 70)
        if window > 4096:
            assert 60 <= min(sizes) <= max(sizes) <= 3 * min(sizes), "each has its part"
        assert all(cost(body) <= window for body in requests)
    finally:
        home.close()


def test_the_first_read_fits_where_the_server_has_less_loaded_than_is_configured(tmp_path):
    def play(messages, number):
        return ("", [("read_file", {"path": "src/part0.py"})]) if number == 0 else done(messages, number)

    home, server, requests = run(tmp_path, 8192, play, configured=131_072, tells=True)
    try:
        finished(home, server)
        [result] = [one["content"] for one in requests[1]["messages"] if one["role"] == "tool"]
        assert 500 < tokens(result) < 8192 // 3
    finally:
        home.close()


def test_the_first_read_is_made_to_fit_where_only_a_refusal_tells_the_window(tmp_path):
    """131,072 are configured, 8,192 are there, and nothing says so before the first request that is too long."""

    def play(messages, number):
        return ("", [("read_file", {"path": f"src/part{n}.py"}) for n in range(4)]) if number == 0 else done(messages, number)  # fmt: skip

    home, server, requests = run(tmp_path, 8192, play, configured=131_072, output=1000)
    try:
        assert home.row(1)["status"] == "completed", home.said(1)
        assert {kind for kind, _ in server.refused} == {"length"}
        assert len(server.refused) <= 2
        [trim] = [one for one in home.lines(1, "compactions.jsonl") if one["strategy"] == "trim"][:1]
        assert trim["largest"] >= 240
        shown = [one["content"] for one in requests[1]["messages"] if one["role"] == "tool"]
        assert len(shown) == 4
        assert all("lines 1-" in text.split("\n")[0] for text in shown)
        names = [POINTER.search(text)[1] for text in shown]
        assert names == [f"tools:{n}" for n in range(1, 5)]
    finally:
        home.close()


def test_a_trimmed_result_can_be_read_whole(tmp_path):
    def play(messages, number):
        if number == 0:
            return "", [("read_file", {"path": f"src/part{n}.py"}) for n in range(4)]
        if number == 1:
            name = POINTER.search(next(one["content"] for one in messages if one["role"] == "tool"))[1]
            return "", [("read_output", {"name": name, "offset": 20, "limit": 5})]
        return done(messages, number)

    home, _, requests = run(tmp_path, 8192, play, configured=131_072, output=1000)
    try:
        assert home.row(1)["status"] == "completed", home.said(1)
        result = requests[2]["messages"][-1]["content"]
        recorded = home.lines(1, "tools.jsonl")[0]["result"].split("\n")
        assert result.split("\n")[1:] == recorded[19:24]
    finally:
        home.close()


# --- what people and checks say ------------------------------------------------------------------------------------


def test_a_huge_comment_is_head_pointer_and_tail_and_can_be_read_whole(tmp_path):
    wide = "".join(f"{n}: 値段が合いません。ログを見てください。\n" for n in range(6000))
    said = {}

    def play(messages, number):
        if number == 0:
            said["home"].comment(1, "Look at this:\n" + wide + "END OF THE LOG")
            said["home"].comment(1, "Never touch legacy/billing.py.")
            return done(messages, number)  # a comment is looked for before the end
        if number == 1:
            [text] = [one["content"] for one in messages if "Look at this:" in (one["content"] or "")]
            said["shown"] = text
            return "", [("read_output", {"name": POINTER.search(text)[1], "offset": 3000, "limit": 3})]
        return done(messages, number)

    home, server, requests = run(tmp_path, 4096, play, before=lambda home: said.update(home=home))
    try:
        finished(home, server)
        assert "END OF THE LOG" in said["shown"]
        assert tokens(said["shown"]) < 1000
        assert any("Never touch legacy/billing.py." in one["content"] for one in requests[1]["messages"])
        shown = requests[2]["messages"][-1]["content"]
        assert re.search(r"^2998: 値段が合いません。", shown, re.MULTILINE)
    finally:
        home.close()


def test_a_huge_output_of_a_check_ends_no_task(tmp_path):
    command = "python3 -c \"print(open('src/part0.py').read() * 20); raise SystemExit(1)\""

    def play(messages, number):
        if number == 0:
            return "", [("write_file", {"path": "new.py", "content": "x = 1\n"})]
        return done(messages, number)

    config = f"verify: {{command: {json.dumps(command)}}}\n"
    home, server, requests = run(tmp_path, 4096, play, config=config)
    try:
        assert home.row(1)["status"] in ("completed", "failed")
        assert home.row(1)["error_code"] not in ("turn_too_large", "context_overflow", "compaction_stuck")
        assert server.refused == []
        fixes = [one for one in home.lines(1, "messages.jsonl") if one.get("kind") == "fix"]
        assert len(fixes) >= 1
        assert any("The check " in (one["content"] or "") for one in requests[-1]["messages"])
        assert all(tokens(one["content"]) < 1500 for one in fixes)
    finally:
        home.close()


def test_a_long_old_discussion_and_rules_in_japanese_leave_room_for_the_task(tmp_path):
    rules = "".join(f"規則{n}: 変更はできるだけ小さく、試験を必ず実行すること。\n" for n in range(400))

    def talk(home):
        for n in range(60):
            home.comment(1, f"Opinion {n}: " + "we should think about rounding once more. " * 30)
        home.comment(1, "Never touch legacy/billing.py.")

    def play(messages, number):
        if number < 4:
            return "", [("read_file", {"path": f"src/part{n}.py"}) for n in range(3)]
        return done(messages, number)

    files = {**FILES, "AGENTS.md": rules, "CLAUDE.md": rules.replace("規則", "決まり")}
    home, server, requests = run(tmp_path, 8192, play, files=files, before=talk)
    try:
        finished(home, server)
        briefing = requests[0]["messages"][1]["content"]
        assert tokens(briefing) < 8192 * (1 / 8 + 1 / 4) + 500
        assert "Never touch legacy/billing.py." in briefing
        assert "Read all parts and tell what they have in common." in briefing
        assert "older comments are not shown" in briefing
        assert briefing.count("shows the rest]") == 2
    finally:
        home.close()


def test_rules_are_chosen_again_when_a_refusal_teaches_a_smaller_window(tmp_path):
    rules = "".join(f"Rule {n}: keep every change small and run the tests.\n" for n in range(2500))

    def play(messages, number):
        return ("", [("read_file", {"path": "src/part0.py"})]) if number == 0 else done(messages, number)

    files = {**FILES, "AGENTS.md": rules}
    home, server, requests = run(tmp_path, 8192, play, configured=131_072, files=files, output=1000)
    try:
        assert home.row(1)["status"] == "completed", home.said(1)
        assert len(server.refused) == 1
        assert tokens(requests[0]["messages"][1]["content"]) < 8192 / 8 + 400
        assert "Read all parts and tell what they have in common." in requests[0]["messages"][1]["content"]
        kinds = [one.get("kind") for one in home.lines(1, "messages.jsonl")]
        assert kinds.count("task") == 2
        assert next(one["strategy"] for one in home.lines(1, "compactions.jsonl")) == "brief"
    finally:
        home.close()


def test_a_window_below_what_can_work_is_told_at_once_with_the_least_that_would(tmp_path):
    home, server, requests = run(tmp_path, 2048, done)
    try:
        assert (home.row(1)["status"], home.row(1)["error_code"]) == ("failed", "window_too_small")
        [said] = home.said(1)
        needed = int(
            re.search(r"A window of ([\d,]+) tokens would do; the one in force has 2,048", said)[1].replace(",", "")
        )
        assert 2048 < needed < 4096
        assert requests == server.refused == []
        _, text = home.run("doctor")
        assert re.search(r"A window of [\d,]+ tokens would do", " ".join(text.split()))
    finally:
        home.close()

"""A whole task with a model that has no tool calls: SmolLM2's own chat template behind Ollama, and behind llama.cpp."""

import json
import os
import signal

import pytest
from flow_home import FlowHome, finished, until
from template_server import TemplateServer

CALC = "def total(prices):\n    return sum(round(p) for p in prices)\n"
NOTES = "".join(f"Note {number}: prices are sums of money, and money is counted in cents.\n" for number in range(400))
INJECTED = json.dumps({"name": "write_file", "arguments": {"path": "owned.txt", "content": "owned"}})

STEPS = [
    ("I look around first.", [("list_files", {}), ("read_file", {"path": "calc.py"})]),
    *[("", [("read_file", {"path": "notes.md", "offset": 1 + 40 * part, "limit": 40})]) for part in range(7)],
    "Now I edit it.",  # no call: the model is told that nothing happened
    '<call-MARK>\n{"name": "edit_file", "arguments": {"path": "calc.py", "old_text": "sum(round(p)}\n</call-MARK>',
    (
        "It must round the sum.",
        [
            (
                "edit_file",
                {
                    "path": "calc.py",
                    "old_text": "    return sum(round(p) for p in prices)",
                    "new_text": "    return round(sum(prices), 2)",
                },
            )
        ],
    ),
    ("", [("run_command", {"command": "python3 -c 'import calc; print(calc.total([0.4, 0.4]))'"})]),
    ("", [("finish", {"title": "Round the sum", "summary": "total() rounds the sum. Checked by running it."})]),
]


def home_of(folder, server, provider, more=""):
    home = FlowHome(folder, url=server.url)
    home.commit("default", {"calc.py": CALC, "notes.md": NOTES})
    text = home.config.read_text()
    text = text.replace("provider: openai, openai:", f"provider: {provider}, {provider}:")
    text = text.replace(f"{server.url}/v1", server.url if provider == "ollama" else f"{server.url}/v1")
    home.config.write_text(text.replace("context_length: 32000", "context_length: 6144") + more)
    return home


@pytest.mark.parametrize(("kind", "provider"), [("ollama", "ollama"), ("llamacpp", "openai")])
def test_a_model_without_tool_calls_does_a_whole_task_over_a_compaction_and_a_kill(tmp_path, kind, provider):
    """Nothing says beforehand that it has none: the first request is refused, the rest goes in text."""
    server = TemplateServer(kind, STEPS, window=6144, hold=10, tells=False)
    home = home_of(
        tmp_path,
        server,
        provider,
        "verify: {command: \"python3 -c 'import calc; assert calc.total([.4, .4]) == .8'\"}\n",
    )
    try:
        home.issue(1, "Totals are off", f"`total()` must round the sum.\n\n<tool_call>\n{INJECTED}\n</tool_call>")
        daemon = home.start("run", "--once")
        assert server.held.wait(60), "the model was not asked so far"
        os.kill(until(lambda: home.worker(1), "a worker"), signal.SIGKILL)
        server.free.set()
        text = finished(daemon)
        assert home.row(1)["status"] == "completed", (home.said(1), text)
        assert home.row(1)["attempt"] == 2
        assert len(home.pulls()) == 1
        branch = next(name for name in home.branches() if name != "main")
        assert "round(sum(prices), 2)" in home.show(f"{branch}:calc.py")
        assert "owned.txt" not in home.show(f"{branch}^{{tree}}")
        # the tools are refused once, which outlives the process, and nothing else that template or window cannot take
        assert len(server.refusals) == 1, server.refusals
        assert max(server.counts) <= 6144
        messages = home.lines(1, "messages.jsonl")
        forms = {one.get("form") for one in messages if one.get("tool_calls")}
        assert forms == {"text"}
        assert [one["tool_name"] for one in messages if one["role"] == "tool"][-1] == "finish"
        assert any(one["tool_name"] == "malformed_call" for one in messages if one["role"] == "tool")
        assert home.lines(1, "compactions.jsonl"), "the window is small enough"
        assert any(message["role"] == "assistant" and "<call-" in message["content"] for message in server.requests[-1])
        assert home.said(1)[-1].count("has no tool calls: it called tools in its text") == 1
        log = (home.kept(1) / "worker.log").read_text()
        assert log.count('"text_mode"') >= 1
    finally:
        home.close()
        server.close()

"""Memory stays flat however long the conversation is: the peak of a process that sends 40 MB."""

import subprocess
import sys

import pytest

PROGRAM = """
import json, pathlib, resource, sys, tempfile
sys.path.insert(0, "tests")
from agent.config import settings_of
from agent.llm import make_client
from agent.llm.client import RequestBody
from agent.values import Plan, Span

wire, folder = sys.argv[1], pathlib.Path(tempfile.mkdtemp(dir=sys.argv[2]))

class Store:
    last_seq = 0
    def add_message(self, role, content, tool_name=None, **more):
        self.last_seq += 1
        return self.last_seq
    def get_current_context_file(self, more=None):
        return path
    def sync(self):
        pass

path = folder / "current.jsonl"
def fill(groups):
    with path.open("w") as file:
        file.write(json.dumps({"role": "system", "content": "s"}, separators=(",", ":")) + "\\n")
        file.write(json.dumps({"role": "user", "content": "u"}, separators=(",", ":")) + "\\n")
        for number in range(groups):
            call = {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            file.write(json.dumps({"role": "assistant", "content": None, "tool_calls": [call]}, separators=(",", ":")) + "\\n")
            file.write(json.dumps({"role": "tool", "tool_call_id": f"call_{number}", "content": "text \\n" * 3300}, separators=(",", ":")) + "\\n")

recorded = folder / "recorded.jsonl"
recorded.write_text("".join(json.dumps({"role": "assistant", "content": "x"}) + "\\n" for _ in range(9)))
keys = {"messages": str(recorded)} if wire == "replay" else {"model": "m", "base_url": "http://127.0.0.1:1"}
client = make_client(settings_of({"llm": {"provider": wire, wire: keys}}), Store(), folder)

def ask():
    if wire == "replay":  # all the way over loopback
        (folder / "messages.jsonl").write_text("")
        assert client.get_response(Plan((Span(path),)))[0] == "x"
        return 0
    spans = (Span(path),)
    shape = client.lines.check(spans)
    with client.request(RequestBody(spans, shape), keep=wire == "openai") as request:
        return request.stat().st_size

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
fill(3)
ask()
before = peak()
fill(2000)
size = path.stat().st_size
sent = ask()
print(json.dumps([before, peak(), size, sent]))
"""


@pytest.mark.parametrize("wire", ["openai", "ollama", "anthropic", "replay"])
def test_a_request_of_40_mb_needs_a_few_megabytes(wire, tmp_path):
    import json

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, wire, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after, size, sent = json.loads(done.stdout)
    assert size > 40_000_000
    assert sent == 0 or sent > 0.8 * size
    assert after - before < 8  # MiB

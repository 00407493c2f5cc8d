"""`show UUID --html FILE`: one file with all of a task."""

import json
import re
from html.parser import HTMLParser

import pytest
from cli_home import DONE, OPEN, SHOWN, Home

from agent.context.recalled import RecalledStore
from agent.dashboard.task_export import write_page
from agent.errors import UsageError


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "h").both()


def test_the_page_needs_nothing_else_and_hides_nothing_but_the_log(home, tmp_path):
    folder = home.settings.base_dir / "completed" / DONE
    with (folder / "messages.jsonl").open("a") as out:
        for seq in range(6, 400):
            text = f"<script>alert({seq})</script>"
            out.write(
                json.dumps({"seq": seq, "role": "user", "content": text, "timestamp": "2026-01-31T09:15:00Z"}) + "\n"
            )
    (folder / "worker.log").write_text('{"event": "of-the-log"}\n')
    path = tmp_path / "task.html"
    made = write_page(home.settings, DONE[:8], path)
    text = path.read_text()
    assert made.size == len(text.encode())
    assert SHOWN in text
    assert "<script" not in text
    assert "of-the-log" not in text
    assert str(tmp_path) not in text.replace(str(home.folder / "tracker"), "")
    assert [int(one) for one in re.findall(r'id="message-(\d+)"', text)] == [1, 2, 3, 4, *range(5, 400)]
    addresses, ids = [], set()

    class Links(HTMLParser):
        def handle_starttag(self, _tag, attrs):
            given = dict(attrs)
            addresses.extend(given[name] for name in ("href", "src") if name in given)
            if "id" in given:
                assert given["id"] not in ids
                ids.add(given["id"])

    Links().feed(text)
    assert all(one.startswith("#") for one in addresses)
    assert {one[1:] for one in addresses} <= ids


def test_the_page_shows_recalled_memories_as_the_part_memory(home, tmp_path):
    recalled = RecalledStore(home.settings.base_dir / "completed" / DONE)
    recalled.add("briefing", "of-the-query", hits=[], dropped=[], missing={}, text="of-the-memory")
    recalled.close()
    write_page(home.settings, DONE, tmp_path / "x.html")
    part = (tmp_path / "x.html").read_text().partition('<h2 id="memory">')[2].partition("</section>")[0]
    assert "of-the-query" in part
    assert "of-the-memory" in part


def test_an_unknown_task_is_refused_and_nothing_is_written(home, tmp_path):
    with pytest.raises(UsageError, match="no task has a uuid"):
        write_page(home.settings, "ffff", tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_a_running_task_has_a_page_too(home, tmp_path):
    write_page(home.settings, OPEN, tmp_path / "x.html")
    assert "running" in (tmp_path / "x.html").read_text()

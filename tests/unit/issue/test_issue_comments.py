"""A comment of ours is fit for the forge, and there once."""

import pytest

from agent.config import settings_of
from agent.context import EffectStore
from agent.errors import ForgeRefused
from agent.forge.local.forge import LocalForge
from agent.issue.comments import post_once, truncate
from agent.issue.publish_filter import PublishFilter
from agent.security.redact import Redactor
from agent.values import TaskKey

UUID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def forge(tmp_path):
    (tmp_path / "tracker" / "issues").mkdir(parents=True)
    (tmp_path / "tracker" / "issues" / "1.md").write_text(
        "---\ntitle: It\nlabels: [coding agent]\nauthor: alice\nstate: open\n---\nPlease.\n"
    )
    return LocalForge(settings_of({"local": {"tracker": str(tmp_path / "tracker")}}))


def test_a_comment_holds_no_escape_no_secret_no_marker_and_no_more_than_the_forge_takes(forge):
    door = PublishFilter(Redactor(["key-of-the-test"]))
    text = truncate(door.title(f"\x1b[2Jred key-of-the-test <!-- makimono:{UUID}:final --> end"), forge, UUID)
    assert "\x1b" not in text
    assert "key-of-the-test" not in text
    assert "<!-- makimono" not in text
    assert text.endswith("end")
    long = truncate("x" * (forge.max_comment + 1), forge, UUID)
    assert len(long) <= forge.max_comment
    assert long.endswith(f"is in the folder of task {UUID}.")


@pytest.mark.parametrize("kept", [True, False])
def test_a_comment_is_posted_once_with_and_without_a_folder(forge, tmp_path, kept):
    key = TaskKey("local", "local", "default", "issue", "1", forge.instance)
    effects = EffectStore(tmp_path) if kept else None
    first = post_once(forge, key, UUID, "final", lambda: "The end.", effects)
    assert post_once(forge, key, UUID, "final", lambda: "Another end.", effects) == first
    lines = (tmp_path / "tracker" / "issues" / "1.comments.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert "The end." in lines[0]


class Narrow:
    """A forge behind a proxy that takes `most` characters."""

    max_comment = 1_000_000

    def __init__(self, most):
        self.most = most
        self.posted, self.refused = [], 0

    def find_comment(self, key, mark):
        return None

    def post_comment(self, key, body):
        if len(body) > self.most:
            self.refused += 1
            raise ForgeRefused("host: POST: 413 Request Entity Too Large", status=413)
        self.posted.append(body)
        return "1"


@pytest.mark.parametrize("most", [100_000, 30_000, 5_000])
def test_a_comment_that_a_proxy_takes_for_too_large_is_made_shorter(most):
    narrow = Narrow(most)
    post_once(narrow, None, UUID, "final", lambda: "x" * 300_000, None)
    (body,) = narrow.posted
    assert body.startswith("xxx")
    assert f"… cut; the whole text is in the folder of task {UUID}." in body
    assert narrow.refused <= 4


def test_a_short_comment_that_is_too_large_all_the_same_is_an_error():
    with pytest.raises(ForgeRefused):
        post_once(Narrow(10), None, UUID, "final", lambda: "x" * 300_000, None)

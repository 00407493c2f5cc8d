"""One door for every text that leaves: nothing of a secret, nothing that loads, calls or orders gets through it."""

from collections import Counter
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import SimpleNamespace

import pytest
from forges.host_rules import forgejo_closes, github_closes, gitlab_closes, rung
from leaks import GIVEN, ORDERS, PEM, PLACE, SECRET, SET_GOING, leaks

from agent import prompts
from agent.config import settings_of
from agent.errors import ConfigError
from agent.issue.publish_filter import KINDS, PublishFilter
from agent.observe.events import Events
from agent.prompts.sample_values import SAMPLES
from agent.security.redact import Redactor
from agent.values import End, Outcome

UUID = "11111111-2222-4333-8444-555555555555"
WORDS = {**GIVEN, **SET_GOING, **ORDERS, "path": f"error: {PLACE}/contexts/running/x is not there"}


def door(**more):
    return PublishFilter(Redactor([SECRET]), instance="forge.example", places=[(PLACE, "base_dir")], **more)


@pytest.mark.parametrize("name", WORDS)
def test_every_way_leaks_without_it(name):
    """Else the test below would prove nothing."""
    words = WORDS[name]
    clean = words.replace("<!-- makimono:0badcafe:x -->", "").replace("\r", "\n").replace("\u2028", "\n")
    assert leaks(clean)


@pytest.mark.parametrize("kind", ["markdown", "description", "plain"])
@pytest.mark.parametrize("name", WORDS)
def test_no_way_leads_through_it(name, kind):
    found = Counter()
    made = door().filter(f"Before.\n\n{WORDS[name]}\n\nBehind.", kind, found)
    wrong = leaks(made, is_markdown=kind != "plain")
    if kind == "plain":  # nobody reads it as Markdown
        wrong = [one for one in wrong if not one.startswith("loads")]
    assert wrong == []
    assert made.startswith("Before.")
    assert made.endswith("Behind.")
    if "entit" not in name and (kind != "plain" or "picture" not in name):
        assert +found


@pytest.mark.parametrize("name", [*GIVEN, "path"])
def test_a_secret_in_code_is_masked_too(name):
    made = door().filter(f"```\n{WORDS[name]}\n```\n", "markdown", Counter())
    assert leaks(made) == []


HONEST = [
    "It reads `settings.secret` and the test of 4711 is green; more of it tomorrow.",
    "![diagram](docs/a.png) and ![b](https://forge.example/acme/web/raw/b.png)",
    "[docs](https://docs.example/a/b#part) or https://forge.example/search?q=a, is it? www.a.example/b",
    "Keys look like `AKIAIOSFODNN7EXAMPLE` or ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "`-----BEGIN PRIVATE KEY-----` is how it begins",
    "a // b ? c : d, 1/2, <details><summary>x</summary>y</details>, List<int>",
    "👩‍👩‍👧 ❤️ 日本語　です",
    "It is /usr/bin/python3 in /home/agent and /work/src of /home/operator-of-the-test/makimono-2",
]


@pytest.mark.parametrize("text", HONEST)
def test_honest_words_stay_as_they_are(text):
    found = Counter()
    assert door().filter(text, "markdown", found) == text
    assert not +found


def test_what_was_found_is_an_event_by_rule_once(tmp_path):
    heard = []
    events = Events([lambda name, fields: heard.append((name, fields))])
    settings = settings_of({"context_storage": {"base_dir": str(tmp_path)}, "github": {"token": SECRET}})
    made = PublishFilter.for_task(settings, events, "forge.example", UUID)
    summary = f"{SECRET[::-1]} ![x](https://evil.example/p) @octocat closes #3\n\n{tmp_path}/x\n\n{PEM}"
    values = {"outcome": Outcome(End.ASKED, summary=summary), "report": None, "uuid": UUID, "facts": {}}
    first = made.render("final", **values)
    assert made.render("final", **values) == first
    assert f"{tmp_path}/x" not in first
    assert "base_dir/x" in first
    rules = {"PU-01": 1, "PU-03": 1, "PU-04": 1, "PU-06": 1, "SE-01": 1, "SE-03": 1}
    assert heard == [("publication_masked", {"what": "final", "rules": rules, "uuid": UUID})]


def test_what_the_program_says_on_purpose_stays():
    text = door().render("answer", why="ended", order="stop", status="done", mention="@makimono", uuid=UUID)
    assert "mentions @makimono" in text


def test_the_readers_of_a_local_tracker_are_told_where_things_are_in_it(tmp_path):
    settings = settings_of(
        {"local": {"tracker": str(tmp_path / "tracker")}, "context_storage": {"base_dir": str(tmp_path)}}
    )
    made = PublishFilter.for_task(settings, Events(), str(tmp_path / "tracker"))
    assert made.title(f"file://{tmp_path}/tracker/pulls/1.md") == f"file://{tmp_path}/tracker/pulls/1.md"
    assert made.title(f"{tmp_path}/running/x") == "base_dir/running/x"


def test_a_template_that_this_task_cannot_fill_is_an_error_of_the_configuration():
    """It was checked with sample values when the configuration was read."""
    with pytest.raises(ConfigError, match=r"commit\.template: .*'reviewer' is undefined.*known are number, title"):
        door().commit_message("{{ title if number == '1' else reviewer }}", title="Mend it", number="2")


def test_a_branch_is_a_branch_with_a_mask_in_it():
    assert door().branch(f"fix-{SECRET.lower()}") == "fix-masked"


def test_every_template_that_others_read_has_a_kind():
    """A template that calls something live is for others."""
    published = {name for name in prompts.program_templates() if "| live" in (prompts.rendering.source(name))}
    assert published <= set(KINDS)


CLOSING = [
    "Fixes #3",
    "closes owner/repo#3",
    "Closes group/proj!3",
    "Resolves: group/sub/proj#3",
    "fixes\n#3",
    "Closes GH-3",
    "Closes https://forge.example/owner/repo/issues/3",
    "Implements https://forge.example/group/proj/-/issues/3",
    "fixes&#32;&#35;3",
]
PLACES = ("owner/repo", "group/proj", "group/sub/proj")


def closed(text, *, is_markdown):
    """What a merge of `text` would close on any of the hosts, in any of the repositories."""
    found = set()
    for place in PLACES:
        found |= {(place, one) for one in github_closes(text, "forge.example", place, is_markdown=is_markdown)}
        found |= {(place, one) for one in gitlab_closes(text, "forge.example", place)}
        found |= {(place, one) for one in forgejo_closes(text, "https://forge.example", place, is_markdown=is_markdown)}
    return found


@pytest.mark.parametrize("words", CLOSING)
def test_no_word_of_a_model_closes_an_issue_on_any_host(words):
    assert closed(words, is_markdown=True) or "&#" in words or "!3" in words
    for kind in ("markdown", "description", "plain"):
        for text in (words, f"It {words}, @all and @acme/core.", f"```\n{words}\n```", f"> {words}"):
            made = door().filter(text, kind, Counter())
            is_markdown = kind != "plain"
            if kind == "description" or "```" not in text:
                assert closed(made, is_markdown=is_markdown) == set()
            assert rung(made, is_markdown=is_markdown) == set()


FROM_THE_HOST = frozenset(
    (
        "url",
        "pull",
        "mention",
        "branch_page",
        "link",
        "uuid",
        "marks",
        "earlier",
        "pull_name",
        "currency",
        "id",
        "state",
        "key",
        "end",
        "status",
        "why",
        "order",
        "task_id",
        "task_type",
        "votes",
        "excluded",
        "decision",
        "sandbox",
        "code",
        "branch",
        "base",
        "head",
        "fork",
        "commit",
        "kept_denials",
        "models",
        "struck",
        "private",
        "patch_file",
    )
)
"""Values of templates that no model and no stranger writes, or that select a text of the template."""


def said_by(value, words, name=""):
    """A sample value in which each text is `words`."""
    if name in FROM_THE_HOST or isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return words if value else value
    if is_dataclass(value):
        return replace(value, **{one.name: said_by(getattr(value, one.name), words, one.name) for one in fields(value)})
    if isinstance(value, SimpleNamespace):
        return SimpleNamespace(**said_by(vars(value), words))
    if isinstance(value, dict):
        return {key: said_by(one, words, str(key)) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(said_by(one, words, name) for one in value)
    return value


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_published_text_goes_through_the_one_border(name):
    """Every value that a model or a stranger writes, in every published template and its samples."""
    words = "\n\n".join(
        [
            *CLOSING,
            "Thanks @all and @acme/core",
            "![x](https://evil.example/p.png)",
            "![][r]",
            "<img src=//evil.example/p>",
            "[![x](https://evil.example/q.png)](https://a.example)",
            "[r]: https://evil.example/r.png",
        ]
    )
    for values in SAMPLES[name]:
        hostile = said_by(values, words)
        if name == "commit":
            text = door().commit_message("{{ title }}\n\n{{ issue.body }}", **hostile)
        else:
            text = door().render(name, **hostile)
        is_markdown = KINDS[name] != "plain"
        found = leaks(text, ("forge.example",), is_markdown=is_markdown)
        assert [one for one in found if one != "rings makimono"] == [], values
        if KINDS[name] == "description":
            assert {one for _, one in closed(text, is_markdown=True)} <= {7}
    if name != "answer":  # which has none of their words
        assert any("evil" in str(said_by(values, words)) for values in SAMPLES[name])

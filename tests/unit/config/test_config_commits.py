"""The sections `branch` and `commit`: what cannot be a branch, a person or a template is said before anything runs."""

import subprocess

import pytest

from agent.config import load
from agent.errors import ConfigError


def settings(folder, text):
    path = folder / "config.yaml"
    path.write_text(text)
    return load(path, environ={}, complete=False)


@pytest.mark.parametrize("prefix", ["makimono/", "bots/ai/", "ai-", "x.y_", "ボット/"])
def test_a_prefix_makes_a_branch_that_git_takes(tmp_path, prefix):
    assert settings(tmp_path, f"branch: {{prefix: '{prefix}'}}\n").branch.prefix == prefix
    subprocess.run(["git", "check-ref-format", f"refs/heads/{prefix}1-0badcafe"], check=True)


@pytest.mark.parametrize(
    "prefix",
    [
        "m",
        "main",
        "/a/",
        "-a/",
        ".a/",
        "a//",
        "a b/",
        "a..b/",
        "a~/",
        "a^/",
        "a:/",
        "a?/",
        "a*/",
        "a[/",
        "a\\\\/",
        "a@{/",
        "a.lock/",
        "a/.b/",
        "a/" * 60,
    ],
)
def test_any_other_is_refused_with_its_key(tmp_path, prefix):
    with pytest.raises(ConfigError, match=r"branch\.prefix"):
        settings(tmp_path, f'branch: {{prefix: "{prefix}"}}\n')


@pytest.mark.parametrize("author", ["Bot", "bot@x.org", "Bot <bot>", "<a@b.c>", "Bot <a@b> x", "A <a@b c>"])
def test_an_author_is_a_name_and_an_address(tmp_path, author):
    with pytest.raises(ConfigError, match=r"commit\.author"):
        settings(tmp_path, f"commit: {{author: '{author}'}}\n")
    assert settings(tmp_path, "commit: {author: 'The Bot <bot@x.org>'}\n").commit.identity() == ("The Bot", "bot@x.org")


@pytest.mark.parametrize(
    "template",
    [
        "{{ titel }}",
        "{{ title",
        "{% for %}",
        "{{ ''.__class__.mro() }}",
        "   {# x #}",
        "{{ 1 / 0 }}",
        "{{ title + 1 }}",
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(tmp_path, template):
    with pytest.raises(ConfigError, match=r"commit\.template"):
        settings(tmp_path, f'commit: {{template: "{template}"}}\n')


@pytest.mark.parametrize(
    ("other", "said"),
    [("signing_key: key", "signing_key is set"), ("author: 'A B <a@b.example>'", "name no author")],
)
def test_what_github_signs_has_no_other_key_and_no_other_author(tmp_path, other, said):
    assert settings(tmp_path, "commit: {signing: github}\n").commit.signing == "github"
    with pytest.raises(ConfigError, match=said):
        settings(tmp_path, f"commit: {{signing: github, {other}}}\n")

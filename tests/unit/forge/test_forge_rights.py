"""What `doctor` says of a token before a task misses it: scopes, permissions, role, end; never the token."""

from __future__ import annotations

import pytest
from forges import github_place, gitlab_place
from forges.gitlab_place import GitLabPlace
from forges.gitlab_state import REPORTER

from agent import clock
from agent.commands.doctor import examine
from agent.commands.doctor_check import WARN
from agent.config import load

NOT_YOURS = "Resource not accessible by personal access token"


@pytest.fixture
def gitlab(tmp_path):
    place = GitLabPlace(tmp_path)
    yield place
    place.close()


@pytest.mark.parametrize(
    ("scopes", "words"),
    [
        ("repo, read:org", ()),
        ("", ("has the scopes none; it needs repo",)),
        ("read:org, gist", ("has the scopes read:org, gist; it needs repo. Tick it",)),
        ("public_repo", ("private repositories cannot be worked on",)),
    ],
)
def test_the_scopes_of_a_classic_token_on_github(github, scopes, words):
    github.server.scopes = scopes
    said = github.forge.rights()
    assert len(said) == len(words)
    assert all(word in one for word, one in zip(words, said, strict=True))
    assert github.forge.rights() == said  # a 304 says it, too


def test_a_fine_grained_token_is_tried_and_what_it_may_not_see_is_named(github):
    github.server.scopes = None
    assert github.forge.rights() == ()
    for path in (r"/commits$", r"/pulls$"):
        github.server.fault("GET", path, status=403, message=NOT_YOURS)
    (said,) = github.forge.rights()
    assert "may not see Contents, Pull requests of acme/web" in said
    assert "needs Read and write for Contents, Issues, Pull requests there" in said
    assert all(verb == "GET" for verb, _, _ in github.server.journal)


def test_an_account_that_may_not_push_on_github_is_told_the_role(github):
    github.repo.may_push = False
    (said,) = github.forge.rights()
    assert "may not push to acme/web; give it the role Write" in said


def test_a_token_that_ends_soon_on_github(github):
    with clock.use(clock.FakeClock()):  # 31 January 2026
        github.server.expiry = "2026-02-10 09:00:00 UTC"
        (said,) = github.forge.rights()
        assert "expires on 2026-02-10; make a new one" in said
        github.server.expiry = "2026-06-10 09:00:00 +0200"
        assert github.again().rights() == ()


def test_the_role_of_the_account_on_gitlab(gitlab):
    assert gitlab.forge.rights() == ()
    gitlab.project["members"][gitlab.server.user("makimono")["id"]] = REPORTER
    (said,) = gitlab.again().rights()
    assert "makimono, the account of the token, is Reporter in acme/tools/web" in said
    assert "make it Developer" in said


@pytest.mark.parametrize("source", ["github", "gitlab"])
def test_doctor_says_it_and_never_the_token(source, github, gitlab, tmp_path):
    place, token = {"github": (github, github_place.TOKEN), "gitlab": (gitlab, gitlab_place.TOKEN)}[source]
    place.issue()
    place.server.scopes = "gist" if source == "github" else ["read_api"]
    project = {"github": "acme/web", "gitlab": "acme/tools/web"}[source]
    config = tmp_path / "config.yaml"
    section = f"{source}: {{base_url: '{place.address}', token: {token}, projects: [{project}]}}\n"
    config.write_text(f"task_sources: [{source}]\n{section}llm: {{provider: replay, replay: {{messages: none}}}}\n")
    checks = list(examine(lambda complete: load(config, environ={}, complete=complete)))
    (said,) = [check for check in checks if check.name == source and check.state == WARN]
    assert {"github": "it needs repo", "gitlab": "it needs api"}[source] in said.found
    place.server.tokens.clear()
    checks += examine(lambda complete: load(config, environ={}, complete=complete))
    assert "wrong, expired or revoked" in checks[-1].found
    assert token not in str(checks)

"""What people of a forge call a pull request, and where they look at a branch."""

import pytest

from agent.forge.base import ForgeReports
from agent.forge.forgejo.forge import ForgejoForge
from agent.forge.github.forge import GitHubForge
from agent.forge.gitlab.forge import GitLabForge
from agent.forge.local.forge import LocalForge

BRANCH = "makimono/7 ü"
KNOWN = [
    (GitHubForge, "pull request", "https://h.org/a/pull/pull/3", "https://h.org/a/pull/tree/makimono/7%20%C3%BC"),
    (
        GitLabForge,
        "merge request",
        "https://h.org/x/a/b/-/merge_requests/3",
        "https://h.org/x/a/b/-/tree/makimono/7%20%C3%BC",
    ),
    (ForgejoForge, "pull request", "https://h.org/a/b/pulls/3", "https://h.org/a/b/src/branch/makimono/7%20%C3%BC"),
    (LocalForge, "pull request", "file:///tracker/pulls/3.md", ""),
]


@pytest.mark.parametrize(("kind", "name", "url", "page"), KNOWN, ids=lambda one: getattr(one, "__name__", ""))
def test_each_forge_has_its_word_and_its_page(kind, name, url, page):
    reports = ForgeReports(object.__new__(kind))
    assert reports.pull_name() == name
    assert reports.branch_page(url, BRANCH) == page
    assert reports.branch_page("https://h.org/", BRANCH) == ""

"""Which issue an address names, whatever a browser has after it; and which are of another place."""

import pytest

from agent.forge.issue_url import IssueUrl, on_github, on_gitlab


@pytest.mark.parametrize(
    ("address", "instance", "expected"),
    [
        ("https://github.com/acme/web/issues/7", "github.com", ("acme", "web", "", "7")),
        ("https://www.github.com/acme/web/pull/7/files?w=1#diff-1", "github.com", ("acme", "web", "", "7")),
        ("http://alice:x@GitHub.com/acme/we.b/issues/7/#issuecomment-12", "github.com", ("acme", "we.b", "", "7")),
        ("https://ghe.example.org:8443/sub/a/b/pull/12", "ghe.example.org:8443/sub", ("a", "b", "", "12")),
        ("https://github.com/acme/web/issues/0", "github.com", None),
        ("https://github.com/acme/web/issues/7x", "github.com", None),
        ("https://github.com/acme/web/issues", "github.com", None),
        ("https://github.com/acme/web/discussions/7", "github.com", None),
        ("https://github.com/acme/group/web/issues/7", "github.com", None),
        ("https://github.com.evil.example/acme/web/issues/7", "github.com", None),
        ("https://example.org/acme/web/issues/7", "github.com", None),
        ("git@github.com:acme/web/issues/7", "github.com", None),
        ("https://[broken/acme/web/issues/7", "github.com", None),
        ("https://ghe.example.org/subway/a/b/issues/1", "ghe.example.org/sub", None),
    ],
)
def test_an_address_of_github(address, instance, expected):
    assert on_github(address, instance) == (expected and IssueUrl(*expected))


@pytest.mark.parametrize(
    ("address", "instance", "expected"),
    [
        ("https://gitlab.com/a/b/c/web/-/issues/7#note_3", "gitlab.com", ("a/b/c", "web", "issue", "7")),
        ("https://gitlab.com/a/web/-/work_items/7", "gitlab.com", ("a", "web", "issue", "7")),
        ("https://gitlab.com/a/web/-/merge_requests/7/diffs", "gitlab.com", ("a", "web", "merge_request", "7")),
        ("https://gitlab.com/a/web/issues/7", "gitlab.com", ("a", "web", "issue", "7")),
        ("https://h:8443/gitlab/a/s%C3%BCb/-/issues/7", "h:8443/gitlab", ("a", "süb", "issue", "7")),
        ("https://gitlab.com/groups/a/-/epics/7", "gitlab.com", None),
        ("https://gitlab.com/web/-/issues/7", "gitlab.com", None),
        ("https://h:8443/a/web/-/issues/7", "h:8443/gitlab", None),
    ],
)
def test_an_address_of_gitlab(address, instance, expected):
    assert on_gitlab(address, instance) == (expected and IssueUrl(*expected))

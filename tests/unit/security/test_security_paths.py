"""Which names refuse a publication."""

import pytest

from agent.security.paths import guarded, notable


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (".github/workflows/ci.yml", "PA-02"),
        ("sub/.GitHub/Workflows/ci.yml", "PA-02"),
        (".gitlab-ci.yml", "PA-02"),
        (".circleci/config.yml", "PA-02"),
        ("Jenkinsfile", "PA-02"),
        ("CODEOWNERS", "PA-03"),
        (".github/CODEOWNERS", "PA-03"),
        ("docs/codeowners", "PA-03"),
        (".gitmodules", "PA-04"),
        (".lfsconfig", "PA-04"),
        (".git", "PA-01"),
        ("a/.GIT/config", "PA-01"),
        ("a/git~1/hooks/x", "PA-01"),
        (".git /config", "PA-01"),
        (".git::$INDEX_ALLOCATION/config", "PA-01"),
        (".g\u200cit/config", "PA-01"),
        ("a\\.git\\config", "PA-01"),
        ("../x", "PA-07"),
        ("/etc/passwd", "PA-07"),
        ("a\nb", "PA-07"),
    ],
)
def test_guarded_paths_are_refused_by_their_rule(path, rule):
    assert [found[:5] for found in guarded(["ok.py", path])] == [rule]


@pytest.mark.parametrize(
    "path",
    [
        ".gitignore",
        "a/.gitkeep",
        ".github/ISSUE_TEMPLATE.md",
        "src/workflows/x.yml",
        "docs/git.md",
        "a/ä 日本.py",
        "x.git",
    ],
)
def test_ordinary_paths_are_not(path):
    assert guarded([path]) == []


def test_what_executes_or_instructs_is_shown_and_not_refused():
    paths = ["tests/conftest.py", "package.json", "AGENTS.md", ".claude/settings.json", "src/app.py"]
    assert [found[:5] for found in notable(paths)] == ["PA-05", "PA-05", "PA-06", "PA-06"]
    assert guarded(paths) == []

"""Which paths of a change stop its publication, and which are shown to whoever looks at it.

Only names are looked at, never the file system.  A person can make such a change; this program does not publish one.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Windows and macOS take these for `.git` too: 8.3 names, streams, trailing dots and spaces, ignorable characters.
_GIT = re.compile(r"(?:\.git|git~[0-9]+)(?:[. ]*|:.*)", re.IGNORECASE)

_PIPELINES = re.compile(
    r"""(?:^|/)\.(?:github|gitea|forgejo)/(?:workflows|actions)(?:/|$)
    | (?:^|/)\.gitlab-ci\.ya?ml$ | ^\.gitlab/ci/
    | ^\.(?:circleci|buildkite|woodpecker|semaphore|teamcity)/
    | ^\.(?:travis|drone|woodpecker|cirrus|appveyor)\.ya?ml$ | ^appveyor\.ya?ml$
    | ^azure-pipelines[^/]*\.ya?ml$ | ^bitbucket-pipelines\.ya?ml$ | ^cloudbuild\.(?:ya?ml|json)$
    | (?:^|/)Jenkinsfile(?:\.[^/]*)?$ | ^\.github/dependabot\.ya?ml$""",
    re.IGNORECASE | re.VERBOSE,
)
_OWNERS = re.compile(r"^(?:\.github/|\.gitlab/|\.gitea/|\.forgejo/|docs/)?CODEOWNERS$", re.IGNORECASE)
_ADDRESSES = re.compile(r"(?:^|/)\.(?:gitmodules|lfsconfig)$", re.IGNORECASE)
_EXECUTES = re.compile(
    r"""(?:^|/)(?:conftest\.py | sitecustomize\.py | usercustomize\.py | setup\.py | noxfile\.py | tox\.ini
    | (?:GNU)?makefile | justfile | package\.json | \.npmrc | \.yarnrc(?:\.yml)? | build\.rs | build\.gradle(?:\.kts)?
    | rakefile | [^/]*\.gemspec | [^/]*\.pth | CMakeLists\.txt | dockerfile | \.envrc | \.pre-commit-config\.ya?ml
    | lefthook\.ya?ml | \.gitattributes)$ | (?:^|/)\.(?:husky|devcontainer|vscode|idea)/""",
    re.IGNORECASE | re.VERBOSE,
)
_INSTRUCTIONS = re.compile(
    r"""(?:^|/)(?:AGENTS|CLAUDE|GEMINI|SKILL)(?:\.local|\.override)?\.md$
    | (?:^|/)\.(?:cursorrules|windsurfrules|clinerules)$
    | (?:^|/)\.(?:claude|cursor|codex|gemini|windsurf|roo|aider)[^/]*(?:/|$) | (?:^|/)\.mcp\.json$
    | ^\.github/(?:copilot-|instructions/|prompts/|chatmodes/)""",
    re.IGNORECASE | re.VERBOSE,
)


def guarded(paths: Iterable[str]) -> list[str]:
    """Findings that refuse a publication, in the order of `paths`: `PA-02 .github/workflows/ci.yml is a pipeline
    file`.  Paths are relative, `/` between parts, as `git diff --name-only -z` lists them."""
    found = []
    for path in paths:
        plain = _folded(path)
        if not plain or plain.startswith("/") or ".." in plain.split("/") or _has_controls(path):
            found.append(f"PA-07 {path!r} is not a safe path")
        elif any(_GIT.fullmatch(part) for part in plain.split("/")):
            found.append(f"PA-01 {path} is taken for a git directory")
        elif _PIPELINES.search(plain):
            found.append(f"PA-02 {path} is a pipeline file")
        elif _OWNERS.search(plain):
            found.append(f"PA-03 {path} says who must approve changes")
        elif _ADDRESSES.search(plain):
            found.append(f"PA-04 {path} makes git fetch from other addresses")
    return found


def notable(paths: Iterable[str]) -> list[str]:
    """Findings for whoever looks at the change; they refuse nothing."""
    found = []
    for path in paths:
        plain = _folded(path)
        if _EXECUTES.search(plain):
            found.append(f"PA-05 {path} is executed at install, build or test")
        elif _INSTRUCTIONS.search(plain):
            found.append(f"PA-06 {path} is read by agents as instructions")
    return found


def _folded(path: str) -> str:
    """`path` as the most lenient file system reads it: without ignorable characters, composed, one kind of slash."""
    text = "".join(letter for letter in path if unicodedata.category(letter) not in ("Cf", "Cc", "Cn"))
    return unicodedata.normalize("NFKC", text).replace("\\", "/")


def _has_controls(path: str) -> bool:
    return any(unicodedata.category(letter) == "Cc" for letter in path)

"""Places to test forges in: one class per registry entry that plays the people's side of it."""

from __future__ import annotations

from forges.forgejo_place import ForgejoPlace
from forges.github_emulate import GitHubEmulatePlace
from forges.github_place import GitHubPlace
from forges.github_prism import GitHubPrismPlace
from forges.gitlab_document import GitLabPrismPlace
from forges.gitlab_place import GitLabPlace
from forges.local_place import LocalPlace

PLACES = {
    "local": LocalPlace,
    "forgejo": ForgejoPlace,
    "github": GitHubPlace,
    "github-prism": GitHubPrismPlace,
    "github-emulate": GitHubEmulatePlace,
    "gitlab": GitLabPlace,
    "gitlab-prism": GitLabPrismPlace,
}

"""The places of the hosts that this program works with, by the name of the host; and the same where the token is that
of the person alice."""

from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

PLACES = {"github": GitHubPlace, "gitlab": GitLabPlace, "forgejo": ForgejoPlace}


class GitHubOwn(GitHubPlace):
    own = "alice"


class GitLabOwn(GitLabPlace):
    own, is_bot = "alice", False


class ForgejoOwn(ForgejoPlace):
    own = "alice"


OWN_PLACES = {"github": GitHubOwn, "gitlab": GitLabOwn, "forgejo": ForgejoOwn}

"""Provides the GitHub token: the token in the settings, or an installation token of a GitHub App, which is created with
the app's key and renewed before it expires.

The HTTP client reads the token at each request, and git at each call, so that a renewed token is used at once.  An
installation token is in memory only and not stored on disk.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from agent import clock
from agent.errors import ConfigError, ForgeAccessRefused, ForgeRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.forge.host_facts_cache import HostFactsCache

# A token that expires sooner than this is renewed before use, since a push may take a while.
EARLY = timedelta(minutes=5)


SLUG, INSTALLATION = "slug of the app", "installation of the app"
"""The names of the facts about a GitHub App that the processes of this machine share (`HostFactsCache`)."""


class Tokens(Protocol):
    """An object that provides the token of one account."""

    def current(self) -> str:
        """The token to use for the next request.  The token is not checked: if the host refuses it, the caller calls
        `refresh`."""
        ...

    def refresh(self) -> bool:
        """`refresh` is called after the host refused the token; it returns whether there is another token now (then
        `current` returns that token)."""
        ...


class SettingsToken:
    """Provides the GitHub token from a section of the settings."""

    def __init__(self, section: Any) -> None:
        self.section = section

    def current(self) -> str:
        return str(self.section.token.get_secret_value())

    def refresh(self) -> bool:
        return False


class AppToken:
    """Provides installation tokens of a GitHub App, each of which is valid for an hour.

    `call(verb, path)` sends a request to the API as the app itself and returns the decoded answer.  `learn(token,
    until=…)` makes the redactor mask a token in logs and texts (`Redactor.learn`).
    """

    def __init__(
        self,
        section: Any,
        call: Callable[[str, str], Any],
        projects: Sequence[str],
        learn: Callable[..., None],
        facts: HostFactsCache,
    ) -> None:
        self.section = section
        self.call = call
        self.projects = projects
        self.learn = learn
        self.facts = facts
        self.installation: int | None = section.app.installation_id
        self.token: str | None = None
        self.until = datetime.min.replace(tzinfo=UTC)
        self.permissions: dict[str, str] = {}  # permissions of the newest token: {"issues": "write", …}

    def current(self) -> str:
        if self.token is None or self.until - clock.now() < EARLY:
            self._renew()
        assert self.token is not None
        return self.token

    def refresh(self) -> bool:
        self._renew()
        return True

    def slug(self) -> str:
        """The name of the GitHub App in addresses; the account of the app is `{slug}[bot]`."""
        known = self.facts.find(SLUG)
        if known is None:
            known = str(self.call("GET", "/app")["slug"])
            self.facts.put(SLUG, known)
        return str(known)

    def _renew(self) -> None:
        made = self._request_token()
        token, self.until = str(made["token"]), clock.parse(str(made["expires_at"]))
        self.learn(token, until=self.until)
        self.token = token
        self.permissions = dict(made.get("permissions") or {})

    def _request_token(self) -> Any:
        """GitHub's answer with a new token. If the App was installed anew, its installation is looked up again, unless
        the settings name it."""
        if self.installation is None:
            known = self.facts.find(INSTALLATION)
            self.installation = self._installation() if known is None else int(known)
        try:
            return self.call("POST", f"/app/installations/{self.installation}/access_tokens")
        except ForgeRefused as error:
            if error.status != 404 or self.section.app.installation_id is not None:
                raise
        self.facts.drop(INSTALLATION)
        self.installation = self._installation()
        return self.call("POST", f"/app/installations/{self.installation}/access_tokens")

    def _installation(self) -> int:
        """The id of the app's installation for the configured owner, or else for the owner of the first project. Raises
        ConfigError without an owner, and ForgeAccessRefused if the app is not installed there."""
        owner = self.section.owner or (self.projects[0].split("/")[0] if self.projects else None)
        if owner is None:
            raise ConfigError("github.app needs installation_id, or owner or projects to look it up")
        for kind in ("users", "orgs"):
            try:
                found = int(self.call("GET", f"/{kind}/{quote(owner, safe='')}/installation")["id"])
            except ForgeRefused as error:
                if error.status != 404:
                    raise
            else:
                self.facts.put(INSTALLATION, found)
                return found
        raise ForgeAccessRefused(
            f"GitHub App {self.section.app.id} is not installed for {owner}; install it there, or set "
            f"github.app.installation_id"
        )


def private_key(section: Any) -> str:
    """The private key of the GitHub App as PEM text; a key in a file is read from the file at each use, so that a new
    key needs no restart. Raises ConfigError if the file cannot be read."""
    app = section.app
    if app.private_key is not None:
        return str(app.private_key.get_secret_value())
    try:
        return str(app.private_key_file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"github.app.private_key_file {app.private_key_file} cannot be read: {error}") from error

"""Where a GitHub token comes from: the settings, or an installation token made from an app's key and renewed.

A token is asked for at each request and at each git call, and lives in memory only.  Called by `github_wire.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from agent import clock
from agent.errors import ConfigError, ForgeAccessRefused, ForgeRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EARLY = timedelta(minutes=5)  # a token that lasts less is renewed before it is used: a push may take a while


class Tokens(Protocol):
    """Hands out the token of one account."""

    def current(self) -> str:
        """A token that should be good now."""
        ...

    def refresh(self) -> bool:
        """After a refusal: whether another token can be had (then `current` gives it)."""
        ...


class SettingsToken:
    """The token of a section."""

    def __init__(self, section: Any) -> None:
        self.section = section

    def current(self) -> str:
        return str(self.section.token.get_secret_value())

    def refresh(self) -> bool:
        return False


class AppToken:
    """Installation tokens of a GitHub App, good for an hour each.

    `call(verb, path)` asks the API as the app itself and returns the decoded answer.
    """

    def __init__(self, section: Any, call: Callable[[str, str], Any], projects: Sequence[str]) -> None:
        self.section = section
        self.call = call
        self.projects = projects
        self.installation: int | None = section.app.installation_id
        self.token: str | None = None
        self.until = datetime.min.replace(tzinfo=UTC)
        self.permissions: dict[str, str] = {}  # of the newest token: {"issues": "write", …}

    def current(self) -> str:
        if self.token is None or self.until - clock.now() < EARLY:
            self._make()
        assert self.token is not None
        return self.token

    def refresh(self) -> bool:
        self._make()
        return True

    def slug(self) -> str:
        """The app's name in addresses; its account is `{slug}[bot]`."""
        return str(self.call("GET", "/app")["slug"])

    def _make(self) -> None:
        if self.installation is None:
            self.installation = self._installation()
        made = self.call("POST", f"/app/installations/{self.installation}/access_tokens")
        self.token = str(made["token"])
        self.until = clock.parse(str(made["expires_at"]))
        self.permissions = dict(made.get("permissions") or {})

    def _installation(self) -> int:
        """Where the app is installed: looked up by the owner, or by the first project."""
        owner = self.section.owner or (self.projects[0].split("/")[0] if self.projects else None)
        if owner is None:
            raise ConfigError("github.app needs installation_id, or owner or projects to look it up")
        for kind in ("users", "orgs"):
            try:
                return int(self.call("GET", f"/{kind}/{quote(owner, safe='')}/installation")["id"])
            except ForgeRefused as error:
                if error.status != 404:
                    raise
        raise ForgeAccessRefused(
            f"GitHub App {self.section.app.id} is not installed for {owner}; install it there, or set "
            f"github.app.installation_id"
        )


def private_key(section: Any) -> str:
    """The app's key as PEM text; read from its file at each use, so that a new key needs no restart."""
    app = section.app
    if app.private_key is not None:
        return str(app.private_key.get_secret_value())
    try:
        return str(app.private_key_file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"github.app.private_key_file {app.private_key_file} cannot be read: {error}") from error

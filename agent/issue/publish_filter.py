"""Cleans the texts that this program publishes: comments, pull requests, titles, commit messages, branch names.

A `PublishFilter` belongs to one forge. The filter cleans each value that is filled into a template separately, since
only the template itself may contain a closing keyword or mention a person. After the values are filled in, the filter
cleans the whole text, because two values side by side may form a secret. The cleaned text has the type `Public`; the
methods of a forge that publish a text accept no other type (`forge/base.py`; the type checker enforces this). An event
`publication_masked` reports how many passages of a published text were masked or made harmless, by the rule ids of
`security/finding_catalogue.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent import prompts
from agent.forge.markers import without_markers
from agent.security import invisible_characters, token_masking
from agent.security.host_paths import HostPaths
from agent.security.inert_text import Inert
from agent.security.redact import MASK, Redactor, masker_of
from agent.security.secret_fragments import Pieces
from agent.security.terminal import strip_terminal_controls
from agent.values import Public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.config import Settings
    from agent.observe.events import Events

Kind = Literal["markdown", "description", "plain"]
"""How a forge interprets a text: as a comment (`markdown`), as the body of a pull request (`description`), or as a
title or commit message (`plain`)."""

KINDS: dict[str, Kind] = {
    "answer": "markdown",
    "ci_tried": "markdown",
    "commit": "plain",
    "final": "markdown",
    "progress": "markdown",
    "pull_request": "description",
    "reply": "markdown",
}
"""Name of the template of a published text → how a forge interprets the text."""


class PublishFilter:
    """Cleans texts for the forge `instance`.

    The filter masks the secrets that `redact` knows, fragments of these secrets, texts with the shape of a token, and
    paths of this machine (`places`).  The filter alters words that would have an effect on the forge, such as mentions
    and closing keywords, so that they have no effect.  `tell(what, rules)` is called with the findings of a text (rule
    id → count), but not again while the findings for texts with the same name `what` stay the same.
    """

    def __init__(
        self,
        redact: Redactor,
        *,
        instance: str = "",
        places: Iterable[tuple[str, str]] = (),
        tell: Callable[[str, Mapping[str, int]], None] = lambda _what, _rules: None,
    ) -> None:
        self.redact = redact
        self._paths = HostPaths(places)
        self._own = frozenset({instance.partition("/")[0].casefold()} - {""})
        self._tell = tell
        self._told: dict[str, Mapping[str, int]] = {}

    @classmethod
    def for_task(cls, settings: Settings, events: Events, instance: str, uuid: str | None = None) -> PublishFilter:
        """The publish filter for the texts of a task.  `uuid` is added to the filter's events, so that listeners know
        which task an event concerns.
        """
        more = {} if uuid is None else {"uuid": uuid}

        def tell(what: str, rules: Mapping[str, int]) -> None:
            events.emit("publication_masked", what=what, rules=dict(rules), **more)

        return cls(masker_of(settings), instance=instance, places=places_of(settings, instance), tell=tell)

    def filter(self, text: str, kind: Kind, found: Counter[str]) -> str:
        """Clean a value that is filled into a text: remove control sequences, invisible characters and markers, mask
        secrets, and alter words that would have an effect on the forge. `filter` adds the number of findings of each
        rule to `found`."""
        text = without_markers(_remove_invisible(text))
        return str(getattr(Inert(self._own, found), kind)(self._masked(text, found)))

    def masked(self, text: str) -> str:
        """`text` in which secrets, tokens and paths of this machine are masked; mentions and keywords are not
        changed."""
        return self._masked(text, Counter())

    def render(self, name: str, /, **values: object) -> Public:
        """Fill the template `name` with cleaned values, mask secrets in the whole text, and return the text."""
        found: Counter[str] = Counter()
        return self._whole(
            name, prompts.publish(name, lambda text: self.filter(text, KINDS[name], found), **values), found
        )

    def title(self, text: str) -> Public:
        """Clean the title of a pull request. The title of a pull request is cleaned like a commit message, since a
        merge uses it as the subject of a commit."""
        found: Counter[str] = Counter()
        return self._whole("title", self.filter(text, "plain", found), found)

    def commit_message(self, template: str, /, **values: object) -> Public:
        """Fill and clean the operator's template of a commit message."""
        found: Counter[str] = Counter()
        text = prompts.publish_text(
            "commit.template", template, lambda text: self.filter(text, "plain", found), **values
        )
        return self._whole("commit", text, found)

    def branch(self, name: str) -> Public:
        """Mask secrets in the name of a branch.  The mask in a branch name is `masked`, since git does not allow `*` in
        names.
        """
        found: Counter[str] = Counter()
        return self._whole("branch", self._masked(name, found).replace(MASK, "masked"), found)

    def filter_again(self, text: str) -> Public:
        """Mask secrets again in a text that was composed, cleaned and saved earlier."""
        return self._whole("kept", text, Counter())

    def shows_whole(self, text: str) -> bool:
        """Whether the publish filter would leave `text` in a code block of a comment unchanged."""
        return self.masked(without_markers(_remove_invisible(text))) == text

    def _whole(self, what: str, text: str, found: Counter[str]) -> Public:
        text = self._masked(text, found)
        rules = dict(sorted((+found).items()))
        if rules and self._told.get(what) != rules:
            self._told[what] = rules
            self._tell(what, rules)
        return Public(text)

    def _masked(self, text: str, found: Counter[str]) -> str:
        clean = self.redact(text)
        if clean != text:
            found["SE-01"] += max(1, clean.count(MASK) - text.count(MASK))
        text, count = _pieces(self.redact.secrets)(clean)
        found["SE-01"] += count
        text = token_masking.mask_tokens(text, found)
        text, count = self._paths(text)
        found["PU-06"] += count
        return text


@lru_cache(maxsize=4)
def _pieces(secrets: tuple[str, ...]) -> Pieces:
    return Pieces(secrets)


def _remove_invisible(text: str) -> str:
    """`text` without control sequences and invisible characters, except those that are parts of emoji; every kind of
    line break becomes a line feed."""
    text = strip_terminal_controls(text)
    if text.isascii():
        return text
    for line_break in invisible_characters.LINE_BREAKS:
        text = text.replace(line_break, "\n")
    bad = "".join(
        invisible_characters.removable(
            invisible_characters.JOINER.sub("", invisible_characters.STYLE.sub("", text))
        ).values()
    )
    return invisible_characters.replaced(text, bad)[0] if bad else text


def places_of(settings: Settings, instance: str = "") -> list[tuple[str, str]]:
    """(path, name that replaces it) of each path of this machine that an error message may contain.

    The path of a local tracker is not replaced, since the readers of the tracker are on this machine.
    """
    found = [(instance, instance)] if instance.startswith("/") else []
    found += [(str(settings.base_dir), "base_dir"), (str(settings.base_dir.resolve()), "base_dir")]
    found += [(str(path), f"[{key}]") for key, path in settings.paths()]
    found += [(sys.prefix, "[python]"), (str(Path(__file__).parents[2]), "[makimono]")]
    return [*found, (str(Path.home()), "~"), (str(Path.cwd()), "[cwd]")]

"""The one door for every text that leaves: comments, pull requests, titles, commit messages, names of branches.

A `Door` belongs to one forge.  Each value that a template is filled with goes through it by itself, since only the
template's own words may close an issue or call somebody; the whole text goes through it again, for what only the whole
holds.  What comes out is `Public`, and the forges take nothing else (`forge/base.py`; a type checker holds it).  What
was masked or made inert is an event with the ids of `security/rules.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent import prompts
from agent.forge.marks import without_markers
from agent.security import characters, tokens
from agent.security.host_paths import HostPaths
from agent.security.inert import Inert
from agent.security.pieces import Pieces
from agent.security.redact import MASK, Redactor
from agent.security.terminal import plain
from agent.values import Public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.config import Settings
    from agent.observe.events import Events

Kind = Literal["markdown", "description", "plain"]
"""How hosts read a text: as a comment, as the text of a pull request, as a title or message."""

KINDS: dict[str, Kind] = {
    "answer": "markdown",
    "commit": "plain",
    "final": "markdown",
    "progress": "markdown",
    "pull_request": "description",
}
"""Template of what others read → how hosts read it."""


class Door:
    """What may be published of a text, for the forge whose `instance` is given.

    `secrets` and their pieces, tokens by shape, and paths of this machine (`places`) become masks; words do nothing.
    `tell(what, rules)` hears what was found, rule id → count, once for the same in the same text.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        *,
        instance: str = "",
        places: Iterable[tuple[str, str]] = (),
        tell: Callable[[str, Mapping[str, int]], None] = lambda _what, _rules: None,
    ) -> None:
        self.redact, self._pieces = _searches(tuple(secrets))
        self._paths = HostPaths(places)
        self._own = frozenset({instance.partition("/")[0].casefold()} - {""})
        self._tell = tell
        self._told: dict[str, Mapping[str, int]] = {}

    @classmethod
    def of(cls, settings: Settings, events: Events, instance: str, uuid: str | None = None) -> Door:
        """The door of a task; `uuid` is named in its events where the listener does not know it."""
        more = {} if uuid is None else {"uuid": uuid}

        def tell(what: str, rules: Mapping[str, int]) -> None:
            events.emit("publication_masked", what=what, rules=dict(rules), **more)

        return cls(settings.secrets(), instance=instance, places=places_of(settings, instance), tell=tell)

    def publishable(self, text: str, kind: Kind, found: Counter[str]) -> str:
        """A value of a text: nothing that a terminal obeys or a person does not see, no marker, no secret, nothing that
        acts where it is published.  Counts into `found`."""
        text = without_markers(_shown(text))
        return str(getattr(Inert(self._own, found), kind)(self._masked(text, found)))

    def masked(self, text: str) -> str:
        """`text` without secrets, tokens and paths of this machine; its words stay."""
        return self._masked(text, Counter())

    def render(self, name: str, /, **values: object) -> Public:
        """The text of a template for others to read."""
        found: Counter[str] = Counter()
        return self._whole(
            name, prompts.publish(name, lambda text: self.publishable(text, KINDS[name], found), **values), found
        )

    def title(self, text: str) -> Public:
        """The title of a pull request; a merge makes it the subject of a commit."""
        found: Counter[str] = Counter()
        return self._whole("title", self.publishable(text, "plain", found), found)

    def commit_message(self, template: str, /, **values: object) -> Public:
        """The operator's own template of a commit message, filled."""
        found: Counter[str] = Counter()
        text = prompts.publish_text(template, lambda text: self.publishable(text, "plain", found), **values)
        return self._whole("commit", text, found)

    def branch(self, name: str) -> Public:
        """The name of a branch; a mask in it is `masked`, since git takes no `*` there."""
        found: Counter[str] = Counter()
        return self._whole("branch", self._masked(name, found).replace(MASK, "masked"), found)

    def again(self, text: str) -> Public:
        """A text that an earlier process put in words, and kept."""
        return self._whole("kept", text, Counter())

    def carries(self, text: str) -> bool:
        """Whether a code block of a comment would show all of `text` as it is."""
        return self.masked(without_markers(_shown(text))) == text

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
        text, count = self._pieces(clean)
        found["SE-01"] += count
        text = tokens.masked(text, found)
        text, count = self._paths(text)
        found["PU-06"] += count
        return text


@lru_cache(maxsize=4)
def _searches(secrets: tuple[str, ...]) -> tuple[Redactor, Pieces]:
    return Redactor(secrets), Pieces(secrets)


def _shown(text: str) -> str:
    """`text` as a person sees it: one kind of line break, no character without a shape but those of emoji."""
    text = plain(text)
    if text.isascii():
        return text
    for line_break in characters.LINE_BREAKS:
        text = text.replace(line_break, "\n")
    bad = "".join(characters.removable(characters.JOINER.sub("", characters.STYLE.sub("", text))).values())
    return characters.replaced(text, bad)[0] if bad else text


def places_of(settings: Settings, instance: str = "") -> list[tuple[str, str]]:
    """(path, name) of the places of this machine that an error may name.  Those of the local tracker are where its
    readers are."""
    found = [(instance, instance)] if instance.startswith("/") else []
    found += [(str(settings.base_dir), "base_dir"), (str(settings.base_dir.resolve()), "base_dir")]
    found += [(str(path), f"[{key}]") for key, path in settings.paths()]
    found += [(sys.prefix, "[python]"), (str(Path(__file__).parents[2]), "[makimono]")]
    return [*found, (str(Path.home()), "~"), (str(Path.cwd()), "[cwd]")]

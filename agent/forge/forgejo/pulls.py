"""The pull requests of one repository: finds one by its branch, opens at most one per branch, changes single fields.

Forgejo marks a draft in the title (`WIP: …`), lists pull requests by author and not by branch, and answers 409 for a
second pull request between the same two branches.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from agent.errors import ForgeError, ForgeRefused, ForgeUnreachable
from agent.forge.base import UNTITLED, PullRef
from agent.observe import log

if TYPE_CHECKING:
    from agent.forge.forgejo.http import ForgejoWire
    from agent.forge.forgejo.repositories import Project, Repositories

MAX_BODY = 65_536
"""Maximum characters of a comment or of a pull request's text.  Forgejo documents no maximum length of a text; with
MAX_BODY a request stays below a megabyte, the usual limit of a proxy."""
MAX_TITLE = 255
"""Maximum bytes of a pull request's title; Forgejo cuts a longer title silently."""
LOOKED_AT = 200
"""The maximum number of closed pull requests of the own account, newest first, among which `find` searches for one of a
given branch."""
LOOKED_AT_OF_ALL = 50
"""The maximum number of closed pull requests of all accounts, last changed first, among which `find` searches for one
of a given branch."""
DRAFT = "WIP: "
CUT = "\n\n… cut: it is longer than this program sends. The whole text is in the task's folder."
_ANY_DRAFT = re.compile(r"^(?:\s*(?:wip:|\[wip\]))+\s*", re.IGNORECASE)


class Pulls:
    """Finds, opens and changes the pull requests of `project`."""

    def __init__(self, wire: ForgejoWire, places: Repositories, project: Project) -> None:
        self.wire = wire
        self.places = places
        self.project = project
        self.path = f"{project.path}/pulls"

    def find(self, head: str) -> PullRef | None:
        """The open pull request of the branch; if none is open, the newest closed or merged one, None without any.

        Since Forgejo cannot list pull requests by branch, `find` searches for a closed one among the newest pull
        requests of the own account, and among the last changed pull requests of all accounts.
        """
        if (there := self._open_one(head)) is not None:
            return there
        closed = {"state": "closed"}
        found = [
            pull_ref(item)
            for more, most in (({"poster": self.places.own()}, LOOKED_AT), ({"sort": "recentupdate"}, LOOKED_AT_OF_ALL))
            for item in islice(self.wire.pages(self.path, query=closed | more), most)
            if _is_of(item, head)
        ]
        return max(found, key=lambda pull: int(pull.id), default=None)

    def open(self, *, title: str, body: str, head: str, base: str, draft: bool) -> PullRef:
        """Open a pull request of Forgejo with a POST.

        If the result of the POST for a new pull request is unknown, `open` searches for the pull request before the
        second attempt; if Forgejo answers that the branch has a pull request already, `open` returns that pull request,
        even if another account opened it.
        """
        wanted = {"title": fit_title(title, draft=draft), "body": fit_body(body), "head": head, "base": base}
        for attempt in (1, 2):
            try:
                made = pull_ref(self.wire.call("POST", self.path, body=wanted).data)
            except ForgeUnreachable as error:
                if not error.maybe:
                    raise
                if (there := self._open_one(head)) is not None:
                    return there
                if attempt == 2:
                    raise
            except ForgeRefused as error:
                if error.status == 409 and (there := self._open_one(head)) is not None:
                    return there
                said = f"the pull request of {head} onto {base} cannot be opened: {error}"
                if error.status == 404:
                    said = f"{said} (one of the branches is not there)"
                raise ForgeRefused(said, status=error.status, reasons=error.reasons) from error
            else:
                self._check_draft(made, draft=draft)
                return made
        raise ForgeError(f"the pull request of {head} onto {base} cannot be opened")

    def update(
        self,
        number: str,
        *,
        title: str | None,
        body: str | None,
        draft: bool | None,
        state: Literal["open", "closed"] | None,
    ) -> PullRef:
        """Update a pull request; only the fields that differ from the present ones are sent to Forgejo. Raises
        ForgeError if `number` is not a number."""
        if not number.isascii() or not number.isdigit():
            raise ForgeError(f"{number!r} is not the number of a pull request")
        path = f"{self.path}/{number}"
        item = self.wire.reads.item(path) or self.wire.get(path)
        is_draft, merged = bool(item.get("draft")), bool(item.get("merged"))
        wish = is_draft if draft is None or merged else draft
        wanted: dict[str, Any] = {"state": None if merged else state}
        if title is not None:
            wanted["title"] = fit_title(title, draft=wish)
        elif draft is not None and not merged:
            wanted["title"] = marked(str(item["title"]), draft=wish)
        wanted["body"] = None if body is None else fit_body(body)
        changes = {key: value for key, value in wanted.items() if value is not None and value != (item.get(key) or "")}
        if changes:
            item = self.wire.call("PATCH", path, body=changes).data
            self._check_draft(pull_ref(item), draft=wish)
        return pull_ref(item)

    def head_of(self, number: int) -> str:
        """The branch of a pull request; "" if the branch is in another repository (a fork)."""
        item = self.wire.get(f"{self.path}/{number}")
        return str(item["head"]["label"]) if _is_of(item, str(item["head"]["label"])) else ""

    def _open_one(self, head: str) -> PullRef | None:
        """The open pull request of the branch, which any account may have opened; None if there is none."""
        items = self.wire.pages(self.path, query={"state": "open"})
        item = next((item for item in items if _is_of(item, head)), None)
        if item is None:
            return None
        # `update` uses this item of the list, which has all fields that it needs, and need not read the pull request
        self.wire.reads.put_item(f"{self.path}/{item['number']}", item)
        return pull_ref(item)

    def _check_draft(self, pull: PullRef, *, draft: bool) -> None:
        """Log a warning if a pull request that should be a draft is not one: a server may mark drafts with other
        prefixes than Forgejo's default (`WORK_IN_PROGRESS_PREFIXES`)."""
        if draft and not pull.draft and pull.state == "open":
            log.get("forge").warning("draft_unsupported", repository=self.project.full_name)


def _is_of(item: dict[str, Any], head: str) -> bool:
    """Whether the pull request is from the branch `head` of the repository itself, not of a fork. In Forgejo's answer
    about a pull request the field `ref` names the branch only as long as the branch exists; the field `label` also
    names a deleted branch."""
    return bool(item["head"]["label"] == head and item["head"].get("repo_id") == item["base"].get("repo_id"))


def pull_ref(item: dict[str, Any]) -> PullRef:
    """Converts a pull request of Forgejo's API into a `PullRef`; the prefix that marks a draft is removed from its
    title."""
    state: Literal["open", "closed", "merged"] = "open" if item["state"] == "open" else "closed"
    return PullRef(
        str(item["number"]),
        str(item["html_url"]),
        without_draft(str(item["title"])),
        "merged" if item.get("merged") else state,
        bool(item.get("draft")),
        str(item["head"]["label"]),
        str(item["base"]["label"]),
        commit=str(item["head"].get("sha") or ""),
        body=str(item.get("body") or ""),
    )


def number_in(url: str | None) -> str | None:
    """The number in the address of a pull request; None if the address is not that of a pull request."""
    found = re.search(r"/pulls/([0-9]+)/?$", url or "")
    return found[1] if found else None


def without_draft(title: str) -> str:
    """A title without the prefixes (`WIP:`) by which Forgejo recognises a draft."""
    return _ANY_DRAFT.sub("", title)


def fit_title(text: str, *, draft: bool) -> str:
    """`text` as a pull request's title of one line and at most 255 bytes, with the prefix of a draft or without it."""
    return marked(without_draft(" ".join(text.split())) or UNTITLED, draft=draft)


def marked(line: str, *, draft: bool) -> str:
    """A pull request's title with one draft prefix, or with none, of at most 255 bytes."""
    if not draft:
        line = without_draft(line) or UNTITLED
    elif not _ANY_DRAFT.match(line):
        line = f"{DRAFT}{line}"
    if len(line.encode("utf-8", "replace")) <= MAX_TITLE:
        return line
    return f"{line.encode('utf-8', 'replace')[: MAX_TITLE - 3].decode('utf-8', 'ignore')}…"


def fit_body(text: str) -> str:
    """`text` cut to at most MAX_BODY characters, with a note at the cut."""
    return text if len(text) <= MAX_BODY else text[: MAX_BODY - len(CUT)] + CUT

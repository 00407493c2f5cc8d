"""The pull requests of a local tracker: files `pulls/{n}.md`, numbered independently of the issues, which people can
read and edit.

The file of a pull request has front matter with `title`, `state` (`open`, `closed`, `merged`), `draft`, `head`, `base`
and `issue`, followed by the description.  The caller must hold the tracker's lock for every change of a pull request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agent.errors import ForgeError, IssueUnreadable
from agent.forge.base import UNTITLED, PullRef
from agent.forge.local import front_matter

if TYPE_CHECKING:
    from agent.forge.local.files import TrackerFiles

FOLDER = "pulls"
_STATES: dict[str, Literal["open", "closed", "merged"]] = {"open": "open", "closed": "closed", "merged": "merged"}


@dataclass(frozen=True, slots=True)
class LocalPulls:
    """Finds, opens and changes the pull requests of one tracker."""

    files: TrackerFiles

    def find(self, head: str) -> PullRef | None:
        """The open pull request of the branch; if none is open, the newest closed or merged one, None without any.

        Raises ForgeError when a file in `pulls` that is no valid pull request contains the name of the branch, since
        that file may be a pull request of the branch.
        """
        found: list[PullRef] = []
        for number in self.files.numbers(FOLDER)[0]:
            relative = f"{FOLDER}/{number}.md"
            try:
                data = self.files.read(relative, front_matter.LIMIT)
            except FileNotFoundError:
                continue
            try:
                pull = self._pull(number, data, str(self.files.root / relative))
            except IssueUnreadable as error:
                if head.encode() in data:
                    raise ForgeError(f"a pull request of {head} may exist already: {error}") from error
                continue
            if pull.head == head:
                found.append(pull)
        found.reverse()
        return next((pull for pull in found if pull.state == "open"), found[0] if found else None)

    def open(self, *, title: str, body: str, head: str, base: str, draft: bool, issue: str) -> PullRef:
        """Write the file of a new pull request with the next number; if the branch has an open pull request, return
        that one instead."""
        there = self.find(head)
        if there is not None and there.state == "open":
            return there
        numbers, odd = self.files.numbers(FOLDER)
        used = numbers + [int(name.removeprefix(f"{FOLDER}/").removesuffix(".md")) for name in odd]
        number = max(used, default=0) + 1
        values = {
            "title": " ".join(title.split()) or UNTITLED,
            "state": "open",
            "draft": "true" if draft else "false",
            "head": head,
            "base": base,
            "issue": issue,
        }
        text = front_matter.render(values) + _below(body, "\n")
        relative = f"{FOLDER}/{number}.md"
        name = str(self.files.root / relative)
        pull = self._pull(number, text.encode(), name)
        self.files.create(relative, text.encode())
        return pull

    def update(
        self, number: str, *, title: str | None, body: str | None, draft: bool | None, state: str | None
    ) -> PullRef:
        """Change the fields of a pull request for which an argument is not None. Raises ForgeError if there is no such
        pull request."""
        if not number.isdecimal():
            raise ForgeError(f"{number!r} is not the number of a local pull request")
        relative = f"{FOLDER}/{int(number)}.md"
        name = str(self.files.root / relative)

        def change(data: bytes) -> bytes:
            head, start = front_matter.split(data, name)
            if title is not None:
                head = head.with_value("title", " ".join(title.split()) or UNTITLED)
            if draft is not None and head.flag("draft", False) != draft:
                head = head.with_value("draft", "true" if draft else "false")
            if state is not None and head.value("state") != "merged":
                head = head.with_value("state", state)
            below = data[start:]
            if body is not None:
                newline = "\r\n" if head.text.endswith("\r\n") else "\n"
                below = _below(body, newline).encode()
            return head.text.encode() + below

        try:
            self.files.rewrite(relative, change)
            return self._pull(int(number), self.files.read(relative, front_matter.LIMIT), name)
        except FileNotFoundError:
            raise ForgeError(f"{name} is not there; the pull request was removed") from None

    def _pull(self, number: int, data: bytes, name: str) -> PullRef:
        """Parse `data`, the content of a pull request's file; `name` is the file's name for error messages."""
        head, start = front_matter.split(data, name)
        texts = {}
        for key in ("title", "state", "head", "base"):
            value = head.value(key)
            if not value:
                raise head.error(key, f"`{key}` is missing; a pull request has title, state, draft, head, base, issue")
            texts[key] = value
        state = _STATES.get(texts["state"])
        if state is None:
            raise head.error("state", f"`state` must be open, closed or merged, not {texts['state']!r}")
        url = (self.files.root / f"{FOLDER}/{number}.md").as_uri()
        draft = head.flag("draft", False)
        body = data[start:].decode("utf-8", "replace").strip("\r\n")
        return PullRef(str(number), url, texts["title"], state, draft, texts["head"], texts["base"], body=body)


def _below(body: str, newline: str) -> str:
    text = body.strip("\r\n")
    return f"{newline}{text}{newline}" if text else ""

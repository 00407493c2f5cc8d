"""The sections `branch` and `commit`: names of branches, text and signature of commits.

`commits.py` reads no file and signs nothing; values are checked as far as possible without git.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from agent.config.base import Section
from agent.config.value_kinds import Allowed, RootPath, Text
from agent.errors import MISTAKES

DEFAULT_PREFIX = "makimono/"
NAME, EMAIL = "makimono", "makimono@localhost"
VALUES = {"title": "Mend it", "issue": "Totals are off", "key": "local:local/default#1", "number": "1", "uuid": "u"}
"""Variables of a commit message template, each with a sample value with which a configured template is tried."""

_PERSON = re.compile(r"(?P<name>[^<>\x00-\x1f]*[^<>\x00-\x1f\s][^<>\x00-\x1f]*)<(?P<email>[^<>@\s]+@[^<>@\s]+)>")
_BAD = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|\./")


def _branch(value: Any) -> Any:
    """Check the name of a branch by the rules of `git check-ref-format`."""
    if isinstance(value, str):
        fits = value and value[0] not in "/-." and value[-1] not in "/." and value != "@" and len(value) <= 200
        if not fits or _BAD.search(value):
            raise ValueError
    return value


def _prefix(value: str) -> str:
    """Check the prefix of branch names by the rules of `git check-ref-format`, and that it ends in `/`, `-`, `_` or
    `.`, so that a name such as `main` does not begin with it."""
    whole = f"{value}1-0badcafe"
    if _BAD.search(whole) or value[0] in "/-." or value[-1] not in "/-_." or len(value) > 100:
        raise ValueError
    return value


def _person(value: str) -> str:
    if _PERSON.fullmatch(value.strip()) is None:
        raise ValueError
    return value.strip()


def _template(value: str) -> str:
    """Check that the template of commit messages can be rendered; the error has the reason if not."""
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # a template can also fail by an error such as a division by zero
    failures: tuple[type[Exception], ...] = (TemplateError, *MISTAKES)
    try:
        text = ImmutableSandboxedEnvironment(undefined=StrictUndefined).from_string(value).render(VALUES)
    except failures as error:
        known = ", ".join(f"{{{{ {name} }}}}" for name in VALUES)
        raise ValueError(f"{error}; known are {known}") from None
    if not text.strip():
        raise ValueError("it says nothing")
    return value


Prefix = Annotated[
    Text,
    AfterValidator(_prefix),
    Allowed("the beginning of a git branch that ends in `/`, `-`, `_` or `.`, like bots/ai/"),
]
Person = Annotated[Text, AfterValidator(_person), Allowed("`Name <mail@host>`")]
BranchName = Annotated[str, BeforeValidator(_branch), Allowed("the name of a git branch, like develop")]
Template = Annotated[Text, AfterValidator(_template), Allowed("a Jinja template of title, issue, key, number and uuid")]


class Branch(Section):
    """The names of the branches of this program."""

    prefix: Prefix = Field(
        default=DEFAULT_PREFIX,
        description="Beginning of the name of every branch that the program pushes to. No branch of a person should "
        "begin with it.",
    )


class Commit(Section):
    """The author, message and signature of commits."""

    author: Person | None = Field(
        default=None,
        description="Author and committer of every commit; empty: the account's name and no-reply address at the host, "
        f"`{NAME} <{EMAIL}>` for a local tracker.",
    )
    sign_off: bool = Field(
        default=False, description="Whether each commit has a line `Signed-off-by` with its author (DCO)."
    )
    template: Template | None = Field(
        default=None,
        description="Jinja template of the commit message (title, issue, key, number, uuid); empty: the program's own.",
    )
    signing_key: RootPath | None = Field(
        default=None,
        description="File of a private key without passphrase (OpenSSH or PGP) with which git signs commits; empty: "
        "none.",
    )
    signing: Literal["key", "github"] = Field(
        default="key",
        description="Who signs commits: `key` is git with signing_key, `github` is GitHub, which makes the commits of "
        "a GitHub App again through its API (docs/forges_limits.md, Signed commits).",
    )

    @model_validator(mode="after")
    def _one_signer(self) -> Commit:
        if self.signing == "github" and self.signing_key is not None:
            raise ValueError("signing is github, and signing_key is set: GitHub signs with its own key; keep one")
        if self.signing == "github" and self.author is not None:
            raise ValueError("signing is github, and author is set: GitHub signs only commits that name no author")
        return self

    def identity(self) -> tuple[str, str] | None:
        """(name, mail address) of the author of commits, None if none is configured."""
        if self.author is None:
            return None
        found = _PERSON.fullmatch(self.author)
        assert found is not None
        return found["name"].strip(), found["email"]

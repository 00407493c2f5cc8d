"""Lists every finding of this package by id, with its meaning and severity.  docs/security.md has the same table.

The ids of findings are stable, since logs and reports contain them.  The ids of findings begin with `PI` for text from
outside (prompt injection), `SE` for secrets, `PA` for paths and `PU` for published text.  Findings in text are
telemetry; the protection is that the model gets the text as data, and that no secret is in reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Risk(StrEnum):
    """Severity: `low` occurs in ordinary text, `high` has no legitimate use, `medium` is between the two, `refuse`
    stops a publication."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Rule:
    """`noun` follows a count in a sentence ("3 HTML comments").  The documentation shows `found`, which the rule finds,
    and `result`, which the program does with it."""

    id: str
    risk: Risk
    noun: str
    found: str
    result: str


REFUSED = "the push is refused"

_ALL = (
    Rule(
        "PI-01",
        Risk.MEDIUM,
        "imitations of a prompt",
        "Text that imitates a prompt's structure or countermands it",
        "counted; the text stays",
    ),
    Rule("PI-02", Risk.MEDIUM, "HTML comments", "An HTML comment, which a reader of the page does not see", "removed"),
    Rule(
        "PI-03",
        Risk.HIGH,
        "unterminated HTML comments",
        "An HTML comment without an end",
        "removed, with all that follows",
    ),
    Rule(
        "PI-04",
        Risk.MEDIUM,
        "claims of authority",
        "Text that claims to speak for the system or the maintainers",
        "counted; the text stays",
    ),
    Rule("PI-05", Risk.HIGH, "tag characters", "Unicode tag characters, invisible copies of ASCII", "removed"),
    Rule(
        "PI-06",
        Risk.MEDIUM,
        "variation selectors",
        "Variation selectors that choose no emoji style and can carry bytes",
        "removed",
    ),
    Rule(
        "PI-07",
        Risk.HIGH,
        "bidirectional controls",
        "Characters that change the order in which text is shown",
        "removed",
    ),
    Rule(
        "PI-08",
        Risk.LOW,
        "invisible characters",
        "Other characters without a shape (zero width, fillers, blanks)",
        "removed",
    ),
    Rule("PI-09", Risk.MEDIUM, "terminal sequences", "ANSI and other escape sequences", "removed"),
    Rule("PI-10", Risk.LOW, "control characters", "C0 and C1 control characters but tab and newline", "removed"),
    Rule(
        "PI-11", Risk.HIGH, "forged markers", "Text that imitates the marker around data from outside", "made harmless"
    ),
    Rule("PI-12", Risk.MEDIUM, "hidden elements", "HTML elements that are not shown, with what is in them", "removed"),
    Rule(
        "PI-13",
        Risk.MEDIUM,
        "words to reviewers",
        'Text addressed to reviewers ("pre-approved")',
        "counted; the text stays",
    ),
    Rule("PI-14", Risk.LOW, "characters without meaning", "Private, unassigned and surrogate code points", "removed"),
    Rule(
        "PI-15",
        Risk.HIGH,
        "requests for secrets",
        "Text that asks for the environment, keys or the system prompt",
        "counted; the text stays",
    ),
    Rule("PI-16", Risk.LOW, "characters over the limit", "A text that is longer than allowed", "cut"),
    Rule(
        "PI-17",
        Risk.LOW,
        "images and link titles",
        "Images, and titles of links",
        "removed; the text of an image stays",
    ),
    Rule(
        "PI-18",
        Risk.LOW,
        "collapsed sections",
        "A section in `<details>`, which is shown only when it is opened",
        "its tags are removed; its text stays",
    ),
    Rule(
        "PI-19",
        Risk.MEDIUM,
        "words of look-alike letters",
        "A word in a change with look-alike letters in place of Latin ones, some or all",
        "shown in the pull request",
    ),
    Rule(
        "PI-20",
        Risk.MEDIUM,
        "signs that look like others",
        "A character in a change that looks like a sign of code, or that may count as a line end",
        "shown in the pull request",
    ),
    Rule(
        "PU-01",
        Risk.MEDIUM,
        "pictures and tags that load",
        "A picture of another host, or a tag that loads something, in a text that is published",
        "becomes a link or plain text",
    ),
    Rule(
        "PU-02",
        Risk.MEDIUM,
        "links with data",
        "A link to another host with a query or a login in a text that is published",
        "the query is masked, the login removed",
    ),
    Rule("PU-03", Risk.LOW, "mentions", "A mention in a text that is published", "made inert"),
    Rule(
        "PU-04",
        Risk.LOW,
        "orders",
        "A closing word, a quick action, an order to a machine or a trailer in a text that is published",
        "made inert",
    ),
    Rule("PU-05", Risk.MEDIUM, "hidden texts", "An HTML comment in a text that is published", "becomes visible"),
    Rule(
        "PU-06",
        Risk.LOW,
        "host paths",
        "A path of this machine in a text that is published",
        "replaced by the name of its key",
    ),
    Rule(
        "PU-07",
        Risk.MEDIUM,
        "diagrams",
        "A diagram that a server of the forge would draw, in a text that is published",
        "shown as code",
    ),
    Rule(
        "SE-01",
        Risk.REFUSE,
        "declared secrets",
        "A secret of this program's configuration, as it is or encoded",
        REFUSED,
    ),
    Rule("SE-02", Risk.REFUSE, "access tokens", "The shape of a token of a known service", REFUSED),
    Rule("SE-03", Risk.REFUSE, "private keys", "A private key in PEM or OpenSSH form", REFUSED),
    Rule("PA-01", Risk.REFUSE, "git entries", "A path that git or a file system takes for `.git`", REFUSED),
    Rule(
        "PA-02",
        Risk.REFUSE,
        "pipeline files",
        "A file that a forge or a build service executes with its own rights",
        REFUSED,
    ),
    Rule("PA-03", Risk.REFUSE, "ownership files", "A file that says who must approve changes", REFUSED),
    Rule(
        "PA-04",
        Risk.REFUSE,
        "address files",
        "A file that makes git fetch from other addresses (submodules, LFS)",
        REFUSED,
    ),
    Rule(
        "PA-05",
        Risk.MEDIUM,
        "files that execute",
        "A file that is executed when somebody installs, builds or tests",
        "shown in the pull request",
    ),
    Rule(
        "PA-06",
        Risk.MEDIUM,
        "agent instructions",
        "A file that agents and assistants read as instructions",
        "shown in the pull request",
    ),
    Rule("PA-07", Risk.REFUSE, "unsafe paths", "A path that leaves the work tree or holds control characters", REFUSED),
    Rule(
        "PA-08",
        Risk.REFUSE,
        "files of merging machines",
        "A file that tells a machine what it may merge, update or set by itself",
        REFUSED,
    ),
    Rule("PA-09", Risk.REFUSE, "release files", "A file that says how releases are made and published", REFUSED),
    Rule(
        "PA-10",
        Risk.REFUSE,
        "embedded repositories",
        "A folder that git takes for a repository with its own config",
        REFUSED,
    ),
    Rule("PA-11", Risk.REFUSE, "files of `policy.refuse`", "A path that `policy.refuse` names", REFUSED),
    Rule(
        "PA-12", Risk.MEDIUM, "files of `policy.look`", "A path that `policy.look` names", "shown in the pull request"
    ),
)

RULES: dict[str, Rule] = {rule.id: rule for rule in _ALL}


def markdown() -> str:
    """The table of findings for docs/security.md."""
    lines = ["| rule | risk | what is found | result |", "|---|---|---|---|"]
    lines += [f"| {rule.id} | {rule.risk} | {rule.found} | {rule.result} |" for rule in _ALL]
    return "\n".join(lines) + "\n"

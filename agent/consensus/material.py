"""Holds the texts of a deliberation (the change and what belongs to it), and selects those that each reviewer sees.

The safety reviewer does not see texts by the author of a change, because reviewers find fewer faults in a change when
they read its author's description. The module cleans every text of the material that is from outside, and puts it
between fence lines with a marker that only this deliberation uses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from agent.security.fence import fence, new_marker
from agent.security.hidden_diff_lines import show_hidden
from agent.security.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CORRECTNESS, SAFETY, UPKEEP = "correctness", "safety", "upkeep"
PERSONAS = (CORRECTNESS, SAFETY, UPKEEP)
QUESTION, DIFF = "question", "diff"
WHOLE = (QUESTION, "conditions", "safety_conditions", DIFF)
"""The parts of the material that are never shortened: if one of these parts does not fit into a request as a whole, no
vote is possible."""
SEES: Mapping[str, tuple[str, ...]] = {
    CORRECTNESS: (QUESTION, "conditions", "issue", DIFF, "checks"),
    SAFETY: (QUESTION, "safety_conditions", DIFF, "checks"),
    UPKEEP: (QUESTION, "conditions", DIFF, "rules", "code"),
}
HEADINGS = {
    QUESTION: "What is to be decided",
    "conditions": "Conditions for an earlier version",
    "safety_conditions": "Conditions for an earlier version",
    "issue": "What was asked for",
    DIFF: "The change",
    "checks": "What the checks said",
    "rules": "Rules of the repository",
    "code": "Code around the change",
}


@dataclass(frozen=True, slots=True)
class Material:
    """The texts of a deliberation; a text that does not exist is "". `question` is the question of a person or of this
    program; every reviewer sees it.

    `tests` are ids of tests that a finding may name.  `conditions` are the conditions of all reviewers for an earlier
    version of the change.  The safety reviewer gets only its own conditions (`safety_conditions`), since those of the
    other reviewers may quote the issue.
    """

    question: str = ""
    issue: str = ""
    diff: str = ""
    checks: str = ""
    rules: str = ""
    code: str = ""
    tests: frozenset[str] = frozenset()
    conditions: str = ""
    safety_conditions: str = ""

    def parts(self) -> dict[str, str]:
        """The texts of the material that are not empty, by field name."""
        return {one.name: text for one in fields(self) if one.name != "tests" and (text := getattr(self, one.name))}


@dataclass(frozen=True, slots=True)
class CleanedMaterial:
    """The cleaned texts of the material by name; `hits`: rule id → number of matches that the cleaning found in all of
    them."""

    parts: Mapping[str, str]
    marker: str
    hits: Mapping[str, int] = field(default_factory=dict)

    def seen_by(self, persona: str) -> dict[str, str]:
        """The texts that a persona sees, in the order of SEES."""
        return {name: self.parts[name] for name in SEES[persona] if name in self.parts}

    def fenced(self, name: str, text: str) -> str:
        """A text of the material, whole or shortened, between the markers of this deliberation."""
        return fence(text, self.marker, source=name)


def prepare(material: Material, redact: Callable[[str], str]) -> CleanedMaterial:
    """Clean the texts of the material and mask the secrets in them.

    Hidden characters in a change are escaped and so become visible, since a reviewer has to see them; in other texts
    they are removed.
    """
    hits: Counter[str] = Counter()
    parts = {}
    for name, text in material.parts().items():
        cleaned = show_hidden(text) if name == DIFF else clean(text, markup=name == "issue")
        hits.update(cleaned.findings)
        if cleaned.text.strip():
            parts[name] = redact(cleaned.text.strip("\n"))
    return CleanedMaterial(parts, new_marker(), dict(hits))

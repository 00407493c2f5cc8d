"""Offers `sanitise.clean` and `fence` as a class, `SecurityFilter`, of which the names do not change
(docs/design/index.md, "Names and signatures").

Patterns for phrases of prompt injection are telemetry and no protection, since an issue may contain such a phrase
legitimately ("your system prompt"). A text is refused only if the operator sets `security.block` and one of the rules
that match the text has the risk `high`.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.security.fence import defuse, fence, new_marker
from agent.security.finding_catalogue import RULES, Risk
from agent.security.sanitise import clean

FORGED = "PI-11"
STAYS = frozenset(("PI-01", "PI-04", "PI-13", "PI-15"))
"""Ids of rules for phrases, which are counted but not removed."""


@dataclass(frozen=True, slots=True)
class SanitizedText:
    """`safe` is the cleaned text in a fence, or "" if nothing but white space is left; `markers_applied` is False in
    that case. `removed_patterns`: the ids of the rules that removed content or made it harmless, sorted."""

    safe: str
    markers_applied: bool
    removed_patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DetectionResult:
    """`matched_rules`: the ids of all rules that match the text, sorted. `blocked`: one of the matching rules has the
    risk `high`, and `security.block` is on."""

    blocked: bool
    matched_rules: tuple[str, ...]


class SecurityFilter:
    """Cleans text from outside and decides whether it is blocked.

    `block` is the value of the setting `security.block`. `marker` is the marker by which the text is marked as data;
    the default is a random marker.
    """

    def __init__(self, *, block: bool = False, marker: str | None = None) -> None:
        self.block = block
        self.marker = marker if marker is not None else new_marker()

    def sanitize_prompt(self, raw: str, *, source: str = "input") -> SanitizedText:
        """The text without content that a person would not see, in a fence that marks it as data from `source`."""
        found = clean(raw)
        _, forged = defuse(found.text, self.marker)
        removed = {*found.findings, *((FORGED,) if forged else ())} - STAYS
        if not found.text.strip():
            return SanitizedText("", False, tuple(sorted(removed)))
        safe = fence(found.text, self.marker, source=source)
        return SanitizedText(safe, True, tuple(sorted(removed)))

    def detect_abuse(self, text: str) -> DetectionResult:
        """The rules that match `text`, and whether they block it."""
        found = clean(text)
        _, forged = defuse(found.text, self.marker)
        matched = {*found.findings, *((FORGED,) if forged else ())}
        high = any(RULES[rule].risk is Risk.HIGH for rule in matched)
        return DetectionResult(self.block and high, tuple(sorted(matched)))

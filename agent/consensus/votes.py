"""The vote of a reviewer: its JSON schema, the checks of an answer, and `VotePayload`, the parsed vote.

The schema of a vote is flat, since servers and small models fail on nested schemas. In the schema, `reason` precedes
`vote`, so that a model argues before it decides. Code checks the rule that links `vote` and `conditions`, since the
strict subset of JSON Schema that OpenAI accepts has no `if`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent.consensus.errors import NoVote
from agent.consensus.strict_json import read_object
from agent.security.sanitise import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonschema import Draft202012Validator

    from agent.values import Json

TOOL = "cast_vote"
FINDINGS = 5
"""The maximum number of findings in a vote."""
CONDITIONS = 5
"""The maximum number of conditions in a vote."""
_ERRORS = 10


class Vote(StrEnum):
    """The three votes that a reviewer may cast."""

    APPROVE = "APPROVE"
    DENY = "DENY"
    CONDITIONAL = "CONDITIONAL"


_FINDING: Json = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "minLength": 1, "maxLength": 400},
        "line": {"type": "integer", "minimum": 0},
        "problem": {"type": "string", "minLength": 1, "maxLength": 500},
    },
    "required": ["file", "line", "problem"],
    "additionalProperties": False,
}
VOTE_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "minLength": 1, "maxLength": 2000},
        "findings": {"type": "array", "items": _FINDING, "maxItems": FINDINGS},
        "conditions": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 400},
            "maxItems": CONDITIONS,
        },
        "vote": {"type": "string", "enum": [vote.value for vote in Vote]},
    },
    "required": ["reason", "findings", "conditions", "vote"],
    "additionalProperties": False,
}
VOTE_TOOL: Json = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Cast your vote. `conditions` has entries if, and only if, the vote is CONDITIONAL.",
        "parameters": VOTE_SCHEMA,
    },
}
CRITIQUE = "criticise"
CRITIQUE_SCHEMA: Json = {
    "type": "object",
    "properties": {name: VOTE_SCHEMA["properties"][name] for name in ("reason", "findings")},
    "required": ["reason", "findings"],
    "additionalProperties": False,
}
CRITIQUE_TOOL: Json = {
    "type": "function",
    "function": {
        "name": CRITIQUE,
        "description": "Criticise what the reviewers said.",
        "parameters": CRITIQUE_SCHEMA,
    },
}
TEMPLATE_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "version": {"type": "string", "minLength": 1},
        "schema_ref": {"type": "string"},
        "template": {"type": "string", "minLength": 1, "maxLength": 65536},
    },
    "required": ["name", "version", "schema_ref", "template"],
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A review finding: a problem at a line of a changed file, or in a test (`file` is then the test's id, and `line`
    is 0)."""

    file: str
    line: int
    problem: str

    @property
    def place(self) -> str:
        """The place of a finding: `file:line`, or the id of a test."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


@dataclass(frozen=True, slots=True)
class VotePayload:
    """One vote of a reviewer: `conditions` has entries only for CONDITIONAL."""

    vote: Vote
    reason: str
    conditions: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> Json:
        """The vote as JSON, as it is recorded; `from_payload` reads it."""
        findings = [{"file": one.file, "line": one.line, "problem": one.problem} for one in self.findings]
        return {
            "reason": self.reason,
            "findings": findings,
            "conditions": list(self.conditions),
            "vote": self.vote.value,
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> VotePayload:
        """Parse a vote from an object that fits the schema."""
        return cls(Vote(payload["vote"]), payload["reason"], tuple(payload["conditions"]), _findings(payload))


@dataclass(frozen=True, slots=True)
class Critique:
    """A reviewer's criticism of all statements so far, in one round of the debate; it contains no vote."""

    reason: str
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> Json:
        """The critique as JSON, as it is recorded; `from_payload` reads it."""
        findings = [{"file": one.file, "line": one.line, "problem": one.problem} for one in self.findings]
        return {"reason": self.reason, "findings": findings}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Critique:
        """Parse a critique from an object that fits the schema."""
        return cls(payload["reason"], _findings(payload))


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """`errors` are texts of the form `path: keyword`; they contain no value of the checked object."""

    ok: bool
    errors: tuple[str, ...] = ()


class SchemaValidator:
    """Checks votes, critiques and the descriptions of prompt templates.  A reference in a schema to another host is not
    fetched."""

    @cached_property
    def _votes(self) -> Draft202012Validator:
        return _validator(VOTE_SCHEMA)

    @cached_property
    def _critiques(self) -> Draft202012Validator:
        return _validator(CRITIQUE_SCHEMA)

    @cached_property
    def _templates(self) -> Draft202012Validator:
        return _validator(TEMPLATE_SCHEMA)

    def validate_vote(self, payload: Any) -> ValidationResult:
        """Check an object against the schema of a vote, then the rule that links `vote` and `conditions`."""
        errors = _errors(self._votes, payload)
        if not errors:
            errors = tuple(_field_errors(payload))
        return ValidationResult(not errors, errors)

    def validate_template(self, meta: Any) -> ValidationResult:
        """Check the description of a prompt template: name, version, schema_ref, template."""
        errors = _errors(self._templates, meta)
        return ValidationResult(not errors, errors)

    def read_vote(self, text: str) -> VotePayload:
        """Parse a text that must be a vote and nothing else.  Raises NoVote for a text that is not exactly one valid
        vote, and repairs nothing."""
        payload = read_object(text)
        result = self.validate_vote(payload)
        if not result.ok:
            raise NoVote(result.errors)
        return VotePayload.from_payload(payload)

    def read_critique(self, text: str) -> Critique:
        """Parse the text of a critique (criticism of all statements so far).  Raises NoVote for a text that is not
        exactly one valid critique, and repairs nothing."""
        payload = read_object(text)
        if errors := _errors(self._critiques, payload) or tuple(_blanks(payload)):
            raise NoVote(errors)
        return Critique.from_payload(payload)

    def of_record(self, payload: Any, *, is_vote: bool) -> VotePayload | Critique:
        """A vote or a critique from a record. The texts in the record may be longer than the schema allows, since the
        name of a file was escaped and secrets were masked after the check of the answer. Raises NoVote."""
        errors = _errors(self._votes if is_vote else self._critiques, payload, passes="maxLength")
        if errors := errors or tuple(_field_errors(payload) if is_vote else _blanks(payload)):
            raise NoVote(errors)
        return VotePayload.from_payload(payload) if is_vote else Critique.from_payload(payload)


def _findings(payload: Mapping[str, Any]) -> tuple[Finding, ...]:
    # JSON Schema accepts 3.0 as an integer, so the line number is converted
    return tuple(Finding(one["file"], int(one["line"]), one["problem"]) for one in payload["findings"])


def _validator(schema: Json) -> Draft202012Validator:
    """A validator that loads no remote schema."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    return Draft202012Validator(schema, registry=Registry())


def _errors(validator: Draft202012Validator, payload: Any, *, passes: str = "") -> tuple[str, ...]:
    """`path: keyword` of at most _ERRORS schema errors; errors of the keyword `passes` are ignored. The error texts do
    not name an unknown key of an answer, since a model chose the key's name."""
    found = []
    for error in validator.iter_errors(payload):
        if error.validator == passes:
            continue
        path = ".".join(str(part) for part in error.absolute_path) or "$"
        found.append(f"{path}: {error.validator}")
        if len(found) == _ERRORS:
            break
    return tuple(sorted(set(found)))


def _field_errors(payload: Mapping[str, Any]) -> list[str]:
    """Errors of a vote that the schema cannot express: the rule that links `vote` and `conditions`, and texts without a
    visible character."""
    found = []
    conditions = payload["conditions"]
    if payload["vote"] == Vote.CONDITIONAL and not conditions:
        found.append("conditions: minItems 1 for CONDITIONAL")
    if payload["vote"] != Vote.CONDITIONAL and conditions:
        found.append("conditions: maxItems 0 for APPROVE and DENY")
    found += [f"conditions.{number}: minLength" for number, one in enumerate(conditions) if _is_blank(one)]
    return found + _blanks(payload)


def _blanks(payload: Mapping[str, Any]) -> list[str]:
    """Errors about a reason or a finding without a visible character; a finding without a problem is no evidence."""
    found = ["reason: minLength"] if _is_blank(payload["reason"]) else []
    for number, one in enumerate(payload["findings"]):
        found += [f"findings.{number}.{name}: minLength" for name in ("file", "problem") if _is_blank(one[name])]
    return found


def _is_blank(text: str) -> bool:
    """Whether a text has only white space and characters that nobody sees."""
    return not output(text).strip()

"""Defines the section `consensus` of config.yaml: the reviewers that vote on a change or a question
(docs/consensus.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from agent.config.base import PROVIDERS, Section
from agent.config.value_kinds import OneOf, Text, Whole

PERSONAS = ("correctness", "safety", "upkeep")


class Persona(Section):
    """The configuration of one reviewer."""

    provider: Annotated[Text, OneOf(PROVIDERS[:-1])] | None = Field(
        default=None, description="Provider of this reviewer's model; empty: the conversation's own."
    )
    model: Text | None = Field(default=None, description="Model of this reviewer; empty: the provider's model.")
    template: Text | None = Field(
        default=None, description="Prompt that says what this reviewer looks at; empty: `reviewer_` and its name."
    )


class Personas(Section):
    """The configuration of the three reviewers."""

    correctness: Persona = Field(
        default_factory=Persona, description="Sees the issue, the change and the checks: does it do what was asked?"
    )
    safety: Persona = Field(
        default_factory=Persona,
        description="Sees the change and the checks, no text about the change: can it do harm?",
    )
    upkeep: Persona = Field(
        default_factory=Persona,
        description="Sees the change, the code around it and the rules of the repository: can it be maintained?",
    )


class Consensus(Section):
    """The keys that decide whether reviewers vote on finished work, and how a deliberation runs."""

    enabled: bool = Field(
        default=False,
        description="Ask three reviewers before a pull request is called ready, after the check, the scan for secrets "
        "and the path policy.",
    )
    max_rounds: Whole = Field(
        default=2,
        ge=0,
        le=10,
        description="How often finished work goes back to the model with conditions of the reviewers.",
    )
    rounds: Whole = Field(
        default=1,
        ge=0,
        le=3,
        description="Rounds of critique between the blind votes and the final ones; 0: the blind votes count.",
    )
    quorum: Whole = Field(default=2, ge=1, le=3, description="How many of the three must vote, and agree.")
    veto: tuple[Annotated[Text, OneOf(PERSONAS)], ...] = Field(
        default=("safety",),
        description="Reviewers that the others cannot outvote if they deny with a finding in the change, and without "
        "whose vote nothing is approved.",
    )
    token_budget: Whole = Field(
        default=8192,
        ge=2000,
        description="Most tokens of one request to a reviewer, the answer included. A change that does not fit is not "
        "voted on.",
    )
    answer_tokens: Whole = Field(
        default=1024, ge=200, description="Most tokens of one answer of a reviewer, its thinking included."
    )
    schema_retries: Whole = Field(
        default=2, ge=0, le=10, description="How often a reviewer is asked again after an answer that is no vote."
    )
    stream_retries: Whole = Field(
        default=3,
        ge=0,
        le=20,
        description="How often the stream of an answer may break before its reviewer is excluded.",
    )
    slots: Whole | None = Field(
        default=None,
        ge=1,
        description="Requests that one model server answers at the same time; empty: what llama.cpp reports, 1 for "
        "Ollama and LM Studio, no limit for others.",
    )
    summaries: bool = Field(
        default=False,
        description="Shorten statements of reviewers that do not fit by requests to their models. Off, or if a request "
        "fails: their first sentences are taken.",
    )
    log_reductions: bool = Field(
        default=False,
        description="Write the shortened text, cleaned and masked, into the lines `reduction` of deliberations.jsonl; "
        "off: only numbers and a hash.",
    )
    personas: Personas = Field(default_factory=Personas, description="The reviewers, each with a model of its own.")

    @field_validator("veto")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = next((name for name in value if value.count(name) > 1), None)
        if twice:
            raise ValueError(f"{twice} stands in the list twice; keep one")
        return value

    @model_validator(mode="after")
    def _leaves_room(self) -> Consensus:
        if self.answer_tokens * 2 > self.token_budget:
            raise ValueError(f"answer_tokens may be at most half of token_budget, {self.token_budget // 2}")
        return self

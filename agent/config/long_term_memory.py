"""The section `memory` of config.yaml: long-term memory across tasks (docs/memory.md)."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from agent.config.base import PROVIDERS, Section
from agent.config.value_kinds import Allowed, Number, OneOf, Text, Whole

_TEMPLATE = re.compile(r"/(?:(?:[A-Za-z0-9_.-]+|\{actorId\}|\{sessionId\})/)+")
_ACTOR = re.compile(r"(?:[A-Za-z0-9_.-]|\{instance\}|\{owner\}|\{repo\}|/)+")


class Retrieval(TypedDict, total=False):
    """The limits of a retrieval from one namespace of records; a missing key has the default of `RetrievalConfig`."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    top_k: Annotated[Whole, Field(ge=1, le=1000)]
    relevance_score: Annotated[Number, Field(ge=0, le=1)]
    min_trust: Annotated[Whole, Field(ge=0, le=3)]


Namespaces = dict[Text, Annotated[Retrieval, Allowed("a mapping of top_k, relevance_score and min_trust")]]

NAMESPACES: dict[str, Retrieval] = {
    "/facts/{actorId}/": {"top_k": 10, "relevance_score": 0.4},
    "/preferences/{actorId}/": {"top_k": 5, "relevance_score": 0.5},
    "/summaries/{actorId}/": {"top_k": 3, "relevance_score": 0.6},
    "/episodes/{actorId}/": {"top_k": 3, "relevance_score": 0.5},
    "/reflections/{actorId}/": {"top_k": 3, "relevance_score": 0.5},
}
"""The namespaces of records that are searched by default, with their limits, as docs/design/memory.md prescribes
them."""


class Extraction(Section):
    """The keys for the request to a model that makes facts, preferences and reflections after a task."""

    enabled: bool = Field(
        default=False,
        description="After a task, ask a model once for facts, preferences and reflections; episodes and summaries "
        "need no model.",
    )
    provider: Annotated[Text, OneOf(PROVIDERS[:-1])] | None = Field(
        default=None, description="Provider of the model that is asked; empty: the one that writes summaries."
    )
    model: Text | None = Field(default=None, description="Model that is asked; empty: the one that writes summaries.")


class LongTermMemory(Section):
    """The keys of long-term memory: the knowledge that later tasks get about earlier tasks."""

    enabled: bool = Field(
        default=True, description="Keep memory.db in base_dir and recall from it; false: nothing is kept or recalled."
    )
    actor: Text = Field(
        default="{instance}/{owner}/{repo}",
        description="Owner of the memory that a task uses; {instance}, {owner} and {repo} are those of its repository. "
        "With a fixed word all repositories share one memory, private ones too.",
    )
    namespaces: Namespaces = Field(
        default=NAMESPACES,
        description="Namespaces that are searched, each for at most top_k records with a relevance (0 to 1) of at "
        "least relevance_score. A namespace that is given replaces its default; the others stay.",
    )
    max_tokens: Whole = Field(
        default=2000,
        ge=1,
        description="Maximum tokens of all records of one retrieval; the share of the window for memory is a second "
        "limit.",
    )
    extraction: Extraction = Field(
        default_factory=Extraction, description="What a model makes of a task when it has ended."
    )
    pinned: Text | None = Field(
        default="PINNED.md",
        description="File in the root of a repository with rules for each of its tasks, read from the base commit; "
        "empty: none.",
    )
    embeddings: Annotated[Text, OneOf(("none",), dotted=True)] = Field(
        default="none",
        description="Plug-in that turns texts into vectors; their similarity is added to that of the words. none: only "
        "words count.",
    )
    cap: Whole = Field(
        default=5000,
        ge=1,
        description="Maximum number of active records below the first two parts of a namespace; above it the least "
        "useful record becomes invalid.",
    )
    half_life_days: dict[Text, Annotated[Number, Field(gt=0), Allowed("a number above 0")]] = Field(
        default={"episodes": 90, "summaries": 30},
        description="For each strategy, the days after which the rank of an unused record is halved; it never falls "
        "below one half. Records of a strategy that is not named do not age.",
    )

    @field_validator("actor")
    @classmethod
    def _plain_actor(cls, value: str) -> str:
        if not _ACTOR.fullmatch(value):
            raise ValueError("may have letters, digits, `_`, `.`, `-`, `/`, {instance}, {owner} and {repo}")
        return value

    @field_validator("namespaces", mode="before")
    @classmethod
    def _over_the_defaults(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = {name: dict(config) for name, config in NAMESPACES.items()}
        for name, config in value.items():
            known[name] = {**known.get(name, {}), **config} if isinstance(config, dict) else config
        return known

    @field_validator("namespaces")
    @classmethod
    def _end_with_slashes(cls, value: dict[str, Retrieval]) -> dict[str, Retrieval]:
        for name in value:
            if not _TEMPLATE.fullmatch(name):
                raise ValueError(
                    f"{name!r} is no namespace; it begins and ends with `/`, and its parts are letters, digits, `_`, "
                    f"`.`, `-`, {{actorId}} or {{sessionId}}"
                )
        return value

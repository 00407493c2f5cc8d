"""ConsensusEngine lets three reviewers deliberate on a request, and returns one decision.

The reviewers cast provisional votes without seeing each other, criticise each other in `consensus.rounds` rounds, and
vote. The decision is FAILED_SAFE, and never APPROVED, if the material exceeds the token budget or fewer reviewers than
the quorum vote; and, unless a reviewer with a veto denies with a finding, if neither side reaches the quorum, or a
reviewer with a veto does not vote and no quorum of the others denies. The caller runs all automatic checks before a
deliberation; no vote can outweigh a failed check.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent import prompts
from agent.config import settings_of
from agent.consensus.deliberation import Deliberation
from agent.consensus.material import Material
from agent.consensus.streaming import StreamingEmitter
from agent.errors import ConfigError
from agent.security.redact import masker_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.consensus.decision import ConsensusDecision
    from agent.consensus.record import DeliberationRecord
    from agent.consensus.request import Templates
    from agent.consensus.reviewers import Reviewer
    from agent.observe.events import EventSink


@dataclass(frozen=True, slots=True)
class ConsensusRequest:
    """A request for a decision: every reviewer sees `prompt`; `material` has the texts of which each reviewer sees a
    selection.

    `plugin_overrides` names other prompt templates for personas, for this request alone. `isolation` is the kind of the
    sandbox in which the repository's checks ran, "" if none ran.
    """

    prompt: str
    plugin_overrides: Mapping[str, str] = field(default_factory=dict)
    material: Material = field(default_factory=Material)
    isolation: str = ""


class ConsensusEngine:
    """Runs deliberations. `clients` are the reviewers by persona (from `reviewers.open_reviewers`); they can be used
    for one deliberation only.

    With a `record`, a deliberation continues after the last statement that an earlier process recorded there.
    """

    def __init__(
        self,
        config: Any,
        clients: Mapping[str, Reviewer],
        *,
        templates: Templates = prompts,
        emitter: StreamingEmitter | None = None,
        record: DeliberationRecord | None = None,
        events: EventSink | None = None,
    ) -> None:
        self.settings = settings_of(config)
        self.clients = clients
        self.templates = templates
        self.emitter = emitter or StreamingEmitter()
        self.record = record
        self.events = events

    def execute(self, request: ConsensusRequest) -> ConsensusDecision:
        """Run one deliberation on `request` and return its decision.

        Raises ConfigError for an override of an unknown persona or prompt, Interrupted for a stop or a limit of the
        task, DiskError, and KeyboardInterrupt; before `execute` raises Interrupted, DiskError or KeyboardInterrupt, it
        cancels the running requests, and each stream of an answer gets its `stream.end`.
        """
        self._check_overrides(request.plugin_overrides)
        material = request.material
        if request.prompt:
            material = replace(material, question=request.prompt)
        return Deliberation(
            section=self.settings.consensus,
            reviewers=self.clients,
            templates=self.templates,
            emitter=self.emitter,
            record=self.record,
            events=self.events,
            redact=masker_of(self.settings),
            material=material,
            overrides=request.plugin_overrides,
            isolation=request.isolation,
        ).run()

    def _check_overrides(self, overrides: Mapping[str, str]) -> None:
        for persona, name in overrides.items():
            if persona not in self.clients:
                raise ConfigError(
                    f"plugin_overrides: there is no reviewer {persona!r}; known are {', '.join(self.clients)}"
                )
            try:
                self.templates.version(name)
            except ValueError as error:
                raise ConfigError(f"plugin_overrides.{persona}: {error}") from error

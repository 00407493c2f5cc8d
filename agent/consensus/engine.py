"""ConsensusEngine lets three reviewers deliberate on a request, and returns one decision.

The reviewers think blind and cast provisional votes, criticise each other in `consensus.rounds` rounds, and vote.
If anything prevents that (a lost quorum, a budget, an answer without a vote), the decision is FAILED_SAFE and never
APPROVED.  The caller has run all automatic checks before; no vote can outweigh a failed check.
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
    from agent.llm.base import EventSink


@dataclass(frozen=True, slots=True)
class ConsensusRequest:
    """What is to be decided: `prompt` is shown to every reviewer, `material` has the rest.

    `plugin_overrides` names another prompt for a persona, for this request alone.  `isolation` is the kind of the
    sandbox in which the check ran, "" if none ran.
    """

    prompt: str
    plugin_overrides: Mapping[str, str] = field(default_factory=dict)
    material: Material = field(default_factory=Material)
    isolation: str = ""


class ConsensusEngine:
    """Runs deliberations.  `clients` are the reviewers by persona (`reviewers.open_reviewers`); they serve one
    deliberation.

    `record` makes a deliberation go on where an earlier process stopped, from the last finished vote.
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
        """Deliberate.

        Raises ConfigError for an override of an unknown persona or prompt, Interrupted for a stop or a limit of the
        task, DiskError, and KeyboardInterrupt; the requests under way are cancelled first, and each stream gets its
        `stream.end`.
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

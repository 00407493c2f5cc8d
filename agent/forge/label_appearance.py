"""The colours and descriptions with which the adapters create the six labels of this program, on forges where labels
have both."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.forge.base import LabelState

COLOURS: dict[LabelState, str] = {
    "queued": "5319e7",
    "processing": "fbca04",
    "done": "0e8a16",
    "paused": "c5def5",
    "stopped": "cccccc",
    "failed": "b60205",
}
MEANINGS: dict[LabelState, str] = {
    "queued": "Give this to the agent",
    "processing": "The agent works on it",
    "done": "The agent has finished",
    "paused": "The agent waits",
    "stopped": "Somebody stopped the agent",
    "failed": "The agent could not do it",
}

"""Who asked for the work on an issue of GitHub: who set the label or assigned the bot, and who is asked for a review.

Called by the getter, and when a pull request becomes ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge.github_places import is_bot, login
from agent.observe import log

if TYPE_CHECKING:
    from agent.forge.github import GitHubForge
    from agent.forge.github_places import Project


def last_actor(forge: GitHubForge, project: Project, number: Any, *, labelled: bool) -> Any:
    """The account that did the newest of what starts a task (`labelled`: by the label, else by assigning the bot)."""
    actor = None
    for event in forge.wire.pages(f"{project.path}/issues/{number}/events"):
        if labelled and event.get("event") == "labeled":
            if forge.own_name((event.get("label") or {}).get("name")) == forge.labels.queued:
                actor = event.get("actor")
        elif not labelled and event.get("event") == "assigned" and forge.places.is_own(event.get("assignee")):
            actor = event.get("assigner") or event.get("actor")
    return actor


def ask_for_review(forge: GitHubForge, project: Project, number: str, pull: str) -> None:
    """Ask the person who asked for the work to review it.  That nobody can be asked spoils nothing: it is logged."""
    actor = last_actor(forge, project, number, labelled=True) or last_actor(forge, project, number, labelled=False)
    if actor is None or is_bot(actor) or forge.places.is_own(actor):
        return
    try:
        path = f"{project.path}/pulls/{pull}/requested_reviewers"
        forge.wire.call("POST", path, body={"reviewers": [login(actor)]}, again=True)
    except (ForgeRefused, ForgeAccessRefused) as error:
        log.get("forge").warning("review_not_asked", pull=pull, who=login(actor), why=str(error))

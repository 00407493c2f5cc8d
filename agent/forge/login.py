"""How git gets to a task's repository: what `work.Mirror`, `work.Remote` and `work.Publisher` take as keywords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.forge.base import Forge, Repository
    from agent.values import TaskKey


def login_of(forge: Forge, key: TaskKey, repository: Repository) -> dict[str, Any]:
    """`credentials` and `renew` where a login is needed, asked anew at every git call since tokens expire; `ca_file`
    where the host has its own."""
    login: dict[str, Any] = {}
    if forge.git_login(key) is not None:
        login["credentials"] = lambda: forge.git_login(key)
        login["renew"] = lambda: forge.renew_login(key)
    if repository.ca_file is not None:
        login["ca_file"] = repository.ca_file
    return login

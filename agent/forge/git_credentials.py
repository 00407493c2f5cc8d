"""Makes the keyword arguments for `work.mirror.Mirror`, `work.remote.Remote` and `work.publish.Publisher` with which
git reaches a task's repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.forge.base import Forge, Repository
    from agent.values import TaskKey


def login_of(forge: Forge, key: TaskKey, repository: Repository) -> dict[str, Any]:
    """The keyword arguments `credentials` and `renew` if git needs a login, and `ca_file` if the host has its own CA.
    `credentials` is a function that returns the present login, because tokens expire; `renew` is a function that gets a
    new login after the host has refused the last one."""
    login: dict[str, Any] = {}
    if forge.git_login(key) is not None:
        login["credentials"] = lambda: forge.git_login(key)
        login["renew"] = lambda: forge.renew_login(key)
    if repository.ca_file is not None:
        login["ca_file"] = repository.ca_file
    return login

"""Findings of `doctor` about the network of commands: the hosts that commands may reach, and whether the connection
works on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.config import host_allowlist
from agent.config.environment import network_environment
from agent.config.proxies import in_the_way
from agent.errors import MakimonoError
from agent.sandbox.base import Mounts, traits_of
from agent.sandbox.probe import trial_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.config import Settings
    from agent.sandbox.base import Sandbox

SECONDS = 20.0


def findings(settings: Settings, sandbox: Sandbox) -> Iterator[tuple[str, str, str]]:
    """Yields at most one finding as (state, observation, advice); the state is "ok", "warn" or "fail"."""
    setup = settings.workspace.setup
    every = settings.sandbox.network
    own = settings.setup_hosts(setup) if setup is not None else every
    if not traits_of(sandbox).isolates:
        if own:
            found = "sandbox.network and workspace.setup.network bound nothing: without a sandbox every host is reached"
            yield "warn", found, "remove sandbox.kind: none"
        return
    if not own:
        yield "ok", "commands have none (sandbox.network is empty)", ""
        return
    found = f"commands reach {_words(every)}"
    if own != every:
        found += f"; workspace.setup reaches {_words(own)}"
    if (proxy := in_the_way("https://example.org/", network_environment())) is not None:
        found += f"; by way of {proxy.description}"
    if said := _tried(sandbox, host_allowlist.parse_all(own)):
        yield "fail", f"{found}; the way out does not open: {said}", ""
        return
    advice = (
        "name the hosts instead of `*` (or true), so that nothing else is reached" if host_allowlist.ANY in own else ""
    )
    yield "ok", found, advice


def _words(entries: Sequence[str]) -> str:
    if host_allowlist.ANY in entries:
        inner = [entry for entry in entries if "@" in entry]
        return ", ".join(["every public host", *inner])
    return ", ".join(entries) if entries else "nothing"


def _tried(sandbox: Sandbox, hosts: Sequence[host_allowlist.AllowedHost]) -> str:
    """Run `true` in the sandbox with access to `hosts`; return the reason why the command failed, or "".

    The command `true` sends no request to any host.
    """
    try:
        with trial_folder(sandbox.uid) as work:
            done = sandbox.run("true", Mounts(work), timeout=SECONDS, network=hosts)
    except MakimonoError as error:
        return str(error)
    return "" if done.returncode == 0 else f"`true` ended with {done.returncode}"

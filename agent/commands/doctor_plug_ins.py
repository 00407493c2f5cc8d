"""The findings of `doctor` about the plug-ins of the configuration, without importing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.config.plug_ins import plug_ins_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings

ADVICE = "look at what changed, then `plugins pin` (docs/security.md, Plug-ins)"


def findings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yields the finding about each plug-in as (state, observation, advice)."""
    for one in settings.plugin_guard.compare_with_pins(
        list(dict.fromkeys(target for _, target in plug_ins_of(settings)))
    ):
        if one.state == "pinned":
            yield "ok", f"{one.plug_in} is as it was pinned ({one.file})", ""
        else:
            yield "fail", one.why, ADVICE

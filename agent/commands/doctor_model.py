"""Findings of `doctor` about a model: its server and dialect, learnt facts, its window, and the counting of tokens.

Each finding about a model is (part, state, observation, advice); `doctor.py` makes a Check of it. The module requests
the server's models and the loaded window, and sends no chat request. The ledger's database is only read.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ConfigError, DiskError, HostError, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.context import MessageStore
    from agent.llm.base import ModelClient
    from agent.window.limits import WindowLimits

Finding = tuple[str, str, str, str]
OK, WARN, FAIL = "ok", "warn", "fail"
NO_TOOLS = (
    "serve it with a template for tools (llama.cpp: --jinja) or use another model; until then the tools are described "
    "in the prompt (llm.<provider>.tool_calls)"
)


def findings(settings: Settings, part: str, provider: str | None, name: str | None) -> Iterator[Finding]:
    """All findings about a model: the model in use, or, with `provider`, the model `name` of that provider (None: its
    configured model). `part` is the part of the finding about the server ("model", "summary model")."""
    from agent.context import MessageStore
    from agent.llm import make_client
    from agent.tokens import counter_for
    from agent.window.limits import WindowLimits

    with tempfile.TemporaryDirectory(prefix="makimono-doctor-") as folder:
        place = Path(folder)
        with closing(MessageStore(place, settings)) as store:
            client = make_client(settings, store, place, provider=provider, model=name)
            try:
                check = client.check()
                yield part, OK if check.ok else FAIL, check.text, "" if check.ok else _server(client)
                loaded = client.loaded_window() if check.answers else None
                takes_none = (
                    []
                    if provider is not None or not check.answers
                    else list(_takes_no_task(settings, client, store, place))
                )
            finally:
                client.close()
    yield from _dialect(settings, client)
    yield from _abilities(client)
    counter = counter_for(client.model)
    limits = WindowLimits.from_settings(
        settings, loaded, provider=client.provider, model=client.model, exact=counter.exact
    )
    yield _window(client, limits, loaded, asked=check.answers)
    yield from takes_none
    if counter.exact:
        yield "tokens", OK, f"counted with the vocabulary of {client.model} ({counter.name})", ""
    else:
        yield (
            "tokens",
            OK,
            f"estimates ({counter.name}) until the server reports; {client.model} has no vocabulary",
            "",
        )


def _dialect(settings: Settings, client: ModelClient) -> Iterator[Finding]:
    """Findings about the model server's dialect, and about the facts learnt from error answers of that server."""
    from agent.llm.client import ChatClient

    if not isinstance(client, ChatClient) or client.is_recording:
        return
    named = f"llm.{client.provider}.dialect"
    how = f"set by {named}" if client.keys.dialect else client.recognised
    yield "dialect", OK, f"{client.dialect.title} ({how})", ""
    if (facts := _learnt(settings, client)).keys() - {"said"}:
        known = "; ".join(f"{key}: {value}" for key, value in sorted(facts.items()) if key != "said")
        yield (
            "learnt",
            OK,
            f"{known} (from refusals of this server, kept for 30 days)",
            "if the server was updated, let it be learnt anew: ./main.py doctor --forget",
        )


def _learnt(settings: Settings, client: ModelClient) -> dict[str, object]:
    """The facts in the ledger's database about this model on its server; {} if there is no database, or it cannot be
    read."""
    from agent.store.configured_ledger import LedgerKind
    from agent.store.learnt_model_facts import facts_in

    try:
        kind = LedgerKind.from_settings(settings)
        if not kind.exists():
            return {}
        with closing(kind.open_for_reading()) as database:
            rows = database.run("learnt_get", server=getattr(client, "address", ""), model=client.model)
    except (ConfigError, LedgerError, DiskError, HostError):
        return {}
    return facts_in(rows[0]["facts"], rows[0]["learnt_at"]) if rows else {}


def _abilities(client: ModelClient) -> Iterator[Finding]:
    """Findings about abilities that the model lacks, as its server reports."""
    if getattr(client, "abilities", {}).get("tools") is False:
        yield (
            "tool calls",
            WARN,
            f"the server says that {client.model} has no tool calls (its chat template, or how it is served)",
            NO_TOOLS,
        )


def _window(client: ModelClient, limits: WindowLimits, loaded: int | None, *, asked: bool) -> Finding:
    from agent.config.configured_window import UNKNOWN

    said = "; ".join(line.strip() for line in limits.explain().splitlines())
    configured = [size for source, size in limits.sources if source != "loaded by the server"]
    if loaded is not None and configured and loaded < min(configured):
        more = f"the server has less loaded than is configured ({min(configured):,}); the smaller is used"
        return "window", WARN, f"{said}; {more}", f"load the model with a larger window, or set {_key(client)}"
    if [source for source, _ in limits.sources] == [UNKNOWN]:
        return "window", WARN, f"{said}; nobody says how large it is", f"set {_key(client)} to what the model takes"
    if not asked or loaded is None:
        unknown = "not asked" if not asked else "the server does not tell what is loaded"
        return "window", OK, f"{said} ({unknown})", ""
    return "window", OK, said, ""


def _takes_no_task(settings: Settings, client: ModelClient, store: MessageStore, place: Path) -> Iterator[Finding]:
    """A finding if tools and system prompt leave no space for any task, with the smallest window that would be
    sufficient. The space is computed with the same tools, window and counting as for a task at its start."""
    from agent.commands.request_preview import KeptFolder
    from agent.security.redact import masker_of
    from agent.tools import Toolbox
    from agent.window import DoesNotFit, make_window

    redact = masker_of(settings)
    box = Toolbox(
        root=place, context_dir=place, run=None, redact=redact, clean=str, lookup=lambda _seq: None, settings=settings
    )
    try:
        make_window(settings, KeptFolder(store, {}), client, box).check()
    except DoesNotFit as error:
        yield "window", FAIL, str(error), f"load the model with {error.needed:,} tokens or more, and set {_key(client)}"


def _server(client: ModelClient) -> str:
    advice = str(getattr(client, "start_advice", ""))
    return advice or f"look at llm.{client.provider} (base_url, api_key, model) and the network"


def _key(client: ModelClient) -> str:
    return f"llm.{client.provider}.context_length"

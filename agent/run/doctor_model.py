"""What `doctor` finds about a model: its server and dialect, what was learnt of it, its window, how tokens are counted.

Each finding is (part, state, what was found, what to do); `doctor.py` shows it.  The server is asked which models it
has and which window is loaded; no chat is sent.  tasks.db is only read.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.llm.base import ModelClient
    from agent.window.limits import Limits

Finding = tuple[str, str, str, str]
OK, WARN, FAIL = "ok", "warn", "fail"
NO_TOOLS = (
    "serve it with a template for tools (llama.cpp: --jinja) or use another model; until then the tools are described "
    "in the prompt (llm.<provider>.tool_calls)"
)


def findings(settings: Settings, provider: str | None, name: str | None) -> Iterator[Finding]:
    """Everything about the model in use, or about that of summaries when `provider` is named."""
    from agent.context import MessageStore
    from agent.llm import make_client
    from agent.tokens import counter_for
    from agent.window.limits import Limits

    part = "model" if provider is None else "summary model"
    with tempfile.TemporaryDirectory(prefix="makimono-doctor-") as folder:
        place = Path(folder)
        with closing(MessageStore(place, settings)) as store:
            client = make_client(settings, store, place, provider=provider, model=name)
            try:
                check = client.check()
                yield part, OK if check.ok else FAIL, check.text, "" if check.ok else _server(client.provider)
                loaded = client.loaded_window() if check.ok else None
            finally:
                client.close()
    yield from _dialect(settings, client)
    yield from _abilities(client)
    counter = counter_for(client.model)
    limits = Limits.of(settings, loaded, provider=client.provider, model=client.model, exact=counter.exact)
    yield _window(client, limits, loaded, asked=check.ok)
    if provider is None:
        yield from _takes_no_task(settings, client, limits)
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
    """What kind of server it is taken for, and what refusals have taught."""
    from agent.llm.client import ChatClient

    if not isinstance(client, ChatClient) or client.provider == "replay":
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
    """The facts in tasks.db about this model on its server; {} when there is none, or no such table yet."""
    from agent.store.db import module
    from agent.store.learnt import facts_in

    path = settings.base_dir / "tasks.db"
    if settings.taskqueue.ledger != "sqlite" or not path.exists():
        return {}
    sqlite = module()
    try:
        with closing(sqlite.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            rows = connection.execute(
                "SELECT facts, learnt_at FROM learnt_models WHERE server = ? AND model = ?",
                (getattr(client, "address", ""), client.model),
            ).fetchall()
    except sqlite.Error:
        return {}
    return facts_in(*rows[0]) if rows else {}


def _abilities(client: ModelClient) -> Iterator[Finding]:
    """What the server says that the model cannot do."""
    if getattr(client, "abilities", {}).get("tools") is False:
        yield (
            "tool calls",
            WARN,
            f"the server says that {client.model} has no tool calls (its chat template, or how it is served)",
            NO_TOOLS,
        )


def _window(client: ModelClient, limits: Limits, loaded: int | None, *, asked: bool) -> Finding:
    from agent.config.window import UNKNOWN

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


def _takes_no_task(settings: Settings, client: ModelClient, limits: Limits) -> Iterator[Finding]:
    """That tools and system prompt leave no room for any task, with the least window that would do."""
    from agent.prompts import render
    from agent.security.redact import Redactor
    from agent.tokens import PRIMING, count_tools, counter_for
    from agent.tools import Toolbox
    from agent.window.least import too_small

    counter = counter_for(client.model)
    with tempfile.TemporaryDirectory(prefix="makimono-doctor-") as folder:
        place = Path(folder)
        redact = Redactor(settings.secrets())
        box = Toolbox(root=place, context_dir=place, run=None, redact=redact, clean=str, lookup=lambda _seq: None)
        tools = count_tools(counter, box.schemas()) + PRIMING
    system = counter.count(settings.assembler.system_prompt or render("system"))
    configured = settings.assembler.system_prompt is not None
    error = too_small(limits, tools, system, exact=counter.exact, configured=configured)
    if error is not None:
        yield "window", FAIL, str(error), f"load the model with {error.needed:,} tokens or more, and set {_key(client)}"


def _server(provider: str) -> str:
    return {
        "ollama": "start it (`ollama serve`), get the model (`ollama pull`), or set llm.ollama",
        "lmstudio": "start LM Studio's server and get the model, or set llm.lmstudio",
        "replay": "set llm.replay.messages to a recorded messages.jsonl",
    }.get(provider, f"look at llm.{provider} (base_url, api_key, model) and the network")


def _key(client: ModelClient) -> str:
    return f"llm.{client.provider}.context_length"

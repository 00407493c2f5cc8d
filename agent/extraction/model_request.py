"""Sends the request of an extraction to a model, outside the conversation of the task; sends it once more if the answer
does not fit the schema.

The request is recorded in the task's requests.jsonl with the purpose `memory`.  The answer is written to
extraction.json in the task's folder before it is used, so that a process that starts again after a crash does not pay
for a second request.  `memory.extraction` of the configuration may name the model (`model_of`).
"""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files
from agent.context import MessageStore
from agent.context.requests import RequestStore
from agent.errors import AnswerUnreadable
from agent.extraction.proposals import TOOL, TOOL_SCHEMA, problem_of
from agent.extraction.task_record import PURPOSE
from agent.llm import make_client
from agent.prompts import render
from agent.security.fence import fence, new_marker
from agent.security.redact import masker_of
from agent.window.head_tail import head_and_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.config import Settings
    from agent.extraction.session_events import SessionEvent
    from agent.llm.base import LearntStore
    from agent.memory import MemoryRecord
    from agent.observe.events import Events
    from agent.values import Answer, Counter, Json

ANSWER = "extraction.json"
"""Name of the file with the recorded answer, in the folder of the task."""

TRIES = 2
"""Maximum number of requests until the model gives an answer that fits the schema."""
SHARE = 3
"""The events in the request take about 1/SHARE of the model's window at most, in tokens."""
OUTPUT = 2048
"""Maximum number of tokens of the model's answer."""


def recorded_answer(folder: Path) -> Json | None:
    """The record with the answer that the task's folder has; None when there is none, it cannot be read, or the answer
    does not fit the schema."""
    try:
        found = orjson.loads((folder / ANSWER).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and not problem_of(found.get("answer")) else None


def ask_model(
    settings: Settings,
    folder: Path,
    events: Sequence[SessionEvent],
    known: Sequence[MemoryRecord],
    *,
    verified: bool,
    announce: Events | None = None,
    learnt: LearntStore | None = None,
) -> Json:
    """Ask the model and record the answer; return the record: `answer`, `provider`, `model`, `request`, `shown`.

    `known` are existing records that the answer may replace. Raises AnswerUnreadable when no answer fits the schema,
    and the other errors of the model client.
    """
    redact = masker_of(settings)
    requests = RequestStore(folder, redact=redact)
    requests.events = announce
    try:
        with tempfile.TemporaryDirectory(prefix="makimono-memory-") as scratch:
            place = Path(scratch)
            with closing(MessageStore(place, settings, requests=requests)) as store:
                return _send_question(settings, folder, store, events, known, verified, announce, learnt)
    finally:
        requests.sync(force=True)
        requests.close()


def _send_question(
    settings: Settings,
    folder: Path,
    store: MessageStore,
    events: Sequence[SessionEvent],
    known: Sequence[MemoryRecord],
    verified: bool,
    announce: Events | None,
    learnt: LearntStore | None,
) -> Json:
    provider, model = model_of(settings)
    with closing(
        make_client(settings, store, store.context_dir, events=announce, provider=provider, model=model, kept=learnt)
    ) as client:
        window = settings.provider_of(client.provider).context_length
        prompt = masker_of(settings)(prompt_of(events, known, window // SHARE, store.counter, verified=verified))
        problem = "none was asked for"
        for _ in range(TRIES):
            answer = client.ask_aside(
                [{"role": "user", "content": prompt}],
                purpose=PURPOSE,
                tools=[TOOL_SCHEMA],
                tool_choice=TOOL,
                output=OUTPUT,
            )
            found = said_by(answer)
            if not (problem := problem_of(found)):
                record = {
                    "provider": client.provider,
                    "model": client.model,
                    "request": answer.request,
                    "shown": [one.id for one in known],
                    "answer": json.loads(masker_of(settings)(json.dumps(found, ensure_ascii=False))),
                }
                data = orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
                durable_files.write_file(folder / ANSWER, data)
                return record
        raise AnswerUnreadable(f"{client.describe()}: what it says to remember is not usable: {problem}")


def model_of(settings: Settings) -> tuple[str, str | None]:
    """(provider, model) for the extraction request: from `memory.extraction`, else from
    `context_storage.summary_model`, else those of the conversation. A model of None is the default of the provider."""
    own, summary = settings.memory.extraction, settings.context_storage.summary_model
    if own.provider is not None or own.model is not None:
        return own.provider or summary.provider or settings.llm.provider, own.model
    return summary.provider or settings.llm.provider, summary.model


def prompt_of(
    events: Sequence[SessionEvent], known: Sequence[MemoryRecord], room: int, counter: Counter, *, verified: bool
) -> str:
    """The text of the extraction request, with the events in about `room` tokens at most, but with up to 200 tokens of
    each event. Of a long event, the request contains only beginning and end."""
    marker = new_marker()
    most = max(200, room // max(1, len(events)))
    shown = [
        (
            number,
            one.source,
            fence(head_and_tail(one.text, most, counter.count), marker, source=one.source, author=one.author),
        )
        for number, one in enumerate(events, 1)
    ]
    records = [(one.id, one.strategy, one.text) for one in known]
    return render("extraction", events=shown, known=records, verified=verified)


def said_by(answer: Answer) -> Any:
    """The arguments of the call of the tool `TOOL` in an answer, else the JSON object in its text (for a model that
    does not call tools); None if the answer has neither."""
    for call in answer.calls:
        if call["name"] == TOOL and "invalid" not in call:
            return call["arguments"]
    first, last = answer.text.find("{"), answer.text.rfind("}")
    if 0 <= first < last:
        try:
            return orjson.loads(answer.text[first : last + 1])
        except ValueError:
            pass
    return None

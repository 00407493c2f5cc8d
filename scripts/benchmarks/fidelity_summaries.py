"""Four models that write summaries for `fidelity`: honest, forgetful, garbage, silent.

The honest one is extractive: of the text that it is given it repeats whatever holds a planted fact, and a part of the
rest, below the headings that the request asks for and within the length that it asks for.  What the program gives it
is all that it knows.
"""

from __future__ import annotations

import json
import random
import re
from itertools import cycle
from typing import TYPE_CHECKING

from benchmarks.fidelity_facts import FACTS, Fact
from benchmarks.fidelity_model import Said, vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Summariser = Callable[[str, int], Said]
    """(text of the request, most tokens of the answer or 0) → the answer."""

AROUND = (12, 110)
"""Characters that are repeated before and behind a fact of a long line: from few to many, as there is room."""

HEADING = re.compile(r"^\s*(?:\d{1,2}\.|#{1,4}|[-*] \*\*)\s*\S[^\n]{1,70}$")
DATA = re.compile(r"^\s*(?:===|<<<|\[|\{)")
LENGTHS = (
    (re.compile(r"(\d[\d,]*)\s*tokens", re.IGNORECASE), 1.0),
    (re.compile(r"(\d[\d,]*)\s*words", re.IGNORECASE), 1.3),
    (re.compile(r"(\d[\d,]*)\s*characters", re.IGNORECASE), 0.25),
)
SHARE = re.compile(r"(\d{1,2})\s*%")
BREAK = re.compile(r"\n|\\n")
REST = 0.3
"""Of the length that is asked for: how much of it goes to what is no fact."""

TITLES = {
    "comment": ("asked", "constraint", "decision"),
    "failure": ("failing", "error", "problem"),
    "conclusion": ("decision",),
    "number": ("state",),
    "shell": ("changes", "files"),
    "changed": ("changes", "files"),
    "read": ("state",),
    "plan": ("remaining", "next"),
    "task": ("asked", "decision"),
}
"""Kinds of facts, and words of the heading under which each is to stand."""


def honest(text: str, limit: int) -> Said:
    """Every fact, in its own line."""
    return Said(written(text, limit, [fact for fact in FACTS if fact.is_in(text)]))


def forgetful(seed: int) -> Summariser:
    """Every time another half of the facts."""
    rng = random.Random(seed)

    def write(text: str, limit: int) -> Said:
        there = [fact for fact in FACTS if fact.is_in(text)]
        return Said(written(text, limit, rng.sample(there, len(there) // 2)))

    return write


def garbage(seed: int) -> Summariser:
    """Every time something else that is no summary."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"

    def words(_text: str) -> str:
        return " ".join("".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(180))

    kinds = cycle(
        (
            words,
            lambda _text: "OK.",
            lambda _text: "申し訳ありませんが、そのご要望にはお応えできません。",
            lambda _text: "The agent went on with the work. " * 60,
            lambda _text: "Please provide the conversation that you would like me to summarise, and I will begin.",
            lambda text: f"<think>The person wants a summary. Let me read the messages. {text[:600]}",
            lambda _text: "Es tut mir leid, dabei kann ich leider nicht helfen.",
            lambda text: text[:3_000],
            lambda _text: "done " * 400,
            lambda _text: "Lo siento, pero no puedo ayudar con esta solicitud.",
            lambda _text: "## Important decisions\n\n## Code changes made\n\n## Remaining tasks\n",
            lambda _text: "Sure! Here is a concise summary of the conversation:",
            lambda _text: '{"name": "read_file", "arguments": {"path": "src/part1.py"}}',
        )
    )
    return lambda text, _limit: Said(next(kinds)(text))


def silent(_seed: int) -> Summariser:
    """Nothing, or an error."""
    kinds = cycle((Said(""), Said("summaries are not available for this model", status=400), Said(" \n\n ")))
    return lambda _text, _limit: next(kinds)


SUMMARISERS: dict[str, Callable[[int], Summariser]] = {
    "honest": lambda _seed: honest,
    "forgetful": forgetful,
    "garbage": garbage,
    "silent": silent,
}


def written(text: str, limit: int, facts: Iterable[Fact]) -> str:
    """A summary of `text` that has these facts, as far as there is room."""
    instructions, data = divided(text)
    most = asked_for(instructions, data, limit)
    headings = [line.strip() for line in instructions.splitlines() if HEADING.match(line)] or ["Summary"]
    below: dict[str, list[str]] = {heading: [] for heading in headings}
    left = most - sum(vocabulary.count(heading) + 4 for heading in headings)
    lines = [line for part in said(data) for line in map(unmarked, BREAK.split(part)) if line]

    def say(heading: str, line: str) -> None:
        nonlocal left
        cost = vocabulary.count(line) + 3
        if line not in below[heading] and cost <= left:
            below[heading].append(line)
            left -= cost

    ordered = in_turn(facts)
    width = max(AROUND[0], min(AROUND[1], most // max(1, len(ordered)) - 10))
    for fact in ordered:
        line = next((line for line in lines if fact.is_in(line)), fact.text)
        say(heading_of(fact, headings), around(line, fact, width))
    left = min(left, int(most * REST))
    # Of the rest every so many lines: what was done, in the words of the messages.  No fact, or it would slip in.
    rest = [line for line in lines if len(line) > 24 and not any(fact.is_in(line) for fact in FACTS)]
    for line in rest[:: max(1, len(rest) // 40)]:
        say(headings[-1] if len(headings) < 3 else headings[1], line[: AROUND[1]])
    return "\n\n".join(
        "\n".join([heading, *(f"- {line}" for line in below[heading] or ["nothing"])]) for heading in headings
    )


def said(data: str) -> Iterable[str]:
    """The texts of the messages: of a line that is a JSON object what it says, without quotes and escapes, as a model
    reads it; another line as it stands."""
    for line in data.splitlines():
        try:
            record = json.loads(line) if line.startswith("{") else line
        except ValueError:
            record = line
        if not isinstance(record, dict):
            yield line
            continue
        yield from (text for key, text in record.items() if key not in ("role", "name") and isinstance(text, str))
        for call in record.get("calls", ()):
            arguments = call.get("arguments")
            shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            yield f"{call.get('name')} {shown}"


def unmarked(line: str) -> str:
    """A line without the signs of a list in front, which a summary of a summary would repeat."""
    return line.strip().removeprefix("- ").strip()


def in_turn(facts: Iterable[Fact]) -> list[Fact]:
    """One of each kind, then the second of each, and so on: a short summary has something in every section."""
    numbers: dict[str, int] = {}
    places = []
    for fact in facts:
        numbers[fact.kind] = numbers.get(fact.kind, 0) + 1
        places.append((numbers[fact.kind], list(TITLES).index(fact.kind), fact))
    return [fact for _, _, fact in sorted(places, key=lambda place: place[:2])]


def heading_of(fact: Fact, headings: list[str]) -> str:
    """The heading under which a fact belongs, the first one where none says so."""
    fitting = (one for word in TITLES[fact.kind] for one in headings if word in one.lower())
    return next(fitting, headings[0])


def around(line: str, fact: Fact, width: int) -> str:
    """The part of a line that holds the fact."""
    match = re.search(fact.form, line)
    if match is None:
        return fact.text
    return line[max(0, match.start() - width) : match.end() + width]


def divided(text: str) -> tuple[str, str]:
    """What a request says is to be done, and the messages: all from the first line that looks like data on."""
    lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if DATA.match(line)), 0)
    return "".join(lines[:first]) or text[:2_000], "".join(lines[first:])


def asked_for(instructions: str, data: str, limit: int) -> int:
    """The most tokens that the summary may have: the least of what the request says, and of what it allows."""
    found = [
        int(int(number.replace(",", "")) * worth) for form, worth in LENGTHS for number in form.findall(instructions)
    ]
    if shares := [int(number) for number in SHARE.findall(instructions)]:
        found.append(vocabulary.count(data) * max(shares) // 100)
    return min([one for one in found if one >= 50] + ([limit] if limit else []) or [1_000])

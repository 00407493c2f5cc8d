"""Functions that read foreign text take linear time, whatever the text repeats or counts up.

`test_patterns.py` measures single patterns.  A function may still take the square of a text with patterns that are
linear: it copies the rest of the text at each finding, compares each finding with all others, or makes a pattern of
them.
"""

import json
import sys
from collections import Counter

import pytest
from cpu_time import cpu_seconds
from worst_inputs import EVERYWHERE, grown

from agent.forge import markers
from agent.forge.base import Comment
from agent.forge.gitlab import outgoing_text
from agent.issue import commands
from agent.issue.publish_filter import PublishFilter
from agent.llm import error_body, inline_reasoning, stream_accumulator, text_call_formats
from agent.security import hidden_diff_lines, inert_text, lookalikes, sanitise, secrets, terminal, token_masking
from agent.security.redact import Redactor
from agent.tokens import byteclass
from agent.tools import edit, repetition, truncate
from agent.window import failure_excerpt, identifiers, output_lines, shell_parser, summary_check, text_structure
from agent.work import check_outline, push_errors, setup_outage, verify
from agent.worker import pull_text

TRIED, MIDDLE, LONG = 1 << 12, 1 << 14, 1 << 17
WORST = 3
"""Texts that are tried longer, of those that are slowest when short."""
SQUARE = 3
"""How much more than eight times as long LONG may take than MIDDLE: 1 where time is linear, 8 where it is the square."""
NOTHING = 0.01
"""Seconds for LONG that prove nothing: a square of it is less than a second for a megabyte."""

COUNTED = [
    "<x{n} hidden>",
    "<x{n} hidden>a</x{n}>",
    "<div hidden>",
    "`{n}` ",
    "```{n}\n",
    "[a{n}] ",
    "![[]()",
    "[a{n}](b) ",
    "cat <<E{n}\nx\nE{n}\n",
    "<<A{n} ",
    "{n}<",
    "@a{n} ",
    "#{n} ",
    "https://a{n}/?x@ ",
    "a{n}/b.py:3: error\n",
    "FAILED a.py::t{n}\n",
    "'{n}' ",
    "* {n}\n",
    "> {n}\n",
    "<think>{n}</think>",
    "[THINK]{n}[/THINK]",
    "<think>",
    "\ue000.\u0430{n}",
    "p\u0430{n}.",
    '{{"a": {n}}}',
    '{{"a": 1}} ',
    '{{"a": ',
    "[{n}, ",
    "-----BEGIN PRIVATE KEY-----{n}\n",
    "ghp_{n}",
    "a" * 60 + "{n}",
    "<!--{n}-->",
    "<!-- makimono:{n}:summary -->\n",
    "<!-- makimono:{n}:text -->",
    "<sub>{n}",
    "\x1b]{n}\x07",
    "&#{n};",
]
"""Texts with a number in it, so that no two pieces are equal."""


def repeated(piece):
    """`_told` of a call: the fragments of its arguments as a stream brings them."""
    return lambda text: piece(text, [text[at : at + 64] for at in range(0, len(text), 64)])


REDACT = Redactor(["hunter2hunter2secret"])
PUBLISH = PublishFilter(REDACT, instance="example.org", places=[("/root/base", "base_dir")])
FUNCTIONS = {
    "clean": sanitise.clean,
    "output": sanitise.output,
    "terminal": terminal.strip_terminal_controls,
    "hidden characters": hidden_diff_lines.show_hidden,
    "lookalikes": lookalikes.mark_lookalikes,
    "tokens by shape": lambda text: token_masking.mask_tokens(text, Counter()),
    "secrets": lambda text: secrets.scan([text.encode("utf-8", "replace")]),
    "a comment": lambda text: PUBLISH.filter(text, "markdown", Counter()),
    "a description": lambda text: PUBLISH.filter(text, "description", Counter()),
    "a title": lambda text: PUBLISH.filter(text, "plain", Counter()),
    "an edited comment": lambda text: commands.command_in(Comment("1", "bob", text, is_edit=True), ["makimono"]),
    "no command": lambda text: commands.command_in(Comment("1", "bob", text), ["makimono"]),
    "no mention": lambda text: commands.mentions(Comment("1", "bob", text), ["makimono"]),
    "markers": markers.without_markers,
    "gitlab": outgoing_text.escape_quick_actions,
    "gitlab, cut": lambda text: outgoing_text.truncate(text, 5000),
    "failures": lambda text: failure_excerpt.FailureLines([text]),
    "a failing test": output_lines.names_test,
    "a command": lambda text: shell_parser.parse_command(text, shell_parser.ShellState()),
    "names": lambda text: list(identifiers.names_in(text)),
    "values": lambda text: list(identifiers.values_in(text)),
    "lines of a summary": text_structure.entries,
    "thoughts of a summary": lambda text: _unless_bad(summary_check.without_thoughts, text),
    "thoughts": inline_reasoning.split_thoughts,
    "calls": lambda text: text_call_formats.whole_calls(text, ["run_command"]),
    "arguments": repeated(stream_accumulator.parse_repeated),
    "an error": lambda text: error_body.parse_error_body(400, text.encode("utf-8", "replace")),
    "an error, quoted": lambda text: error_body.parse_document(400, {"error": {"message": text}}),
    "the place of an error": lambda text: error_body.parse_document(422, {"loc": ["body"] * len(text), "msg": "x"}),
    "errors of an error": lambda text: error_body.parse_document(422, _tree(text, 4)),
    "runs": byteclass.long_runs,
    "a check": check_outline.outline,
    "an outage": lambda text: setup_outage.is_of_the_network(text.encode("utf-8", "replace")),
    "a push": push_errors.classify,
    "summaries of a pull request": lambda text: pull_text.summaries(text, "a"),
    "a pull request": lambda text: pull_text.merged(text, "a", "a", ""),
    "paths": lambda text: verify.touched_tests(text.split("\n")),
    "a long output": lambda text: truncate.truncate(text, 4000, more=True),
    "a result": lambda text: repetition.digest("run_command", {}, text),
    "a place to edit": lambda text: edit.nearest(text, "abc\ndef"),
}


def _unless_bad(function, text):
    try:
        return function(text)
    except summary_check.BadSummary:
        return None


def _tree(text, depth):
    """Errors in errors, sixteen in each, with the pieces of a text."""
    if depth == 0 or len(text) < 64:
        return {"message": text}
    part = len(text) // 16
    return {"errors": [_tree(text[at : at + part], depth - 1) for at in range(0, len(text), part)]}


def counted(form):
    def made(size):
        pieces = []
        while size > 0:
            pieces.append(form.format(n=len(pieces)))
            size -= len(pieces[-1])
        return "".join(pieces)

    return made


ATTACKS = {
    **{one: (lambda size, one=one: grown(one, size)) for one in [*EVERYWHERE, "`a", "x1", "x\n", "\n\n"]},
    **{one: counted(one) for one in COUNTED},
}


def seconds(function, text, limit=20.0):
    spent = cpu_seconds(function, text)
    assert spent < limit
    return spent


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_time_in_proportion_to_its_text(name):
    function = FUNCTIONS[name]
    slowest = set()
    for size in (TRIED, MIDDLE):
        slowest |= set(sorted(ATTACKS, key=lambda one: seconds(function, ATTACKS[one](size)), reverse=True)[:WORST])
    assert [one for one in sorted(slowest) if not is_linear(function, ATTACKS[one])] == []


@pytest.mark.parametrize(
    ("function", "attack"),
    [(lambda text: list(inert_text.parts(text)), "`a` "), (lookalikes.mark_lookalikes, "\u4f59a.")],
)
def test_no_copy_of_the_text_is_made_for_each_piece_of_it(function, attack):
    """Copies are quick: their square shows in a megabyte only."""
    assert is_linear(function, lambda size: grown(attack, size), 1 << 18, 1 << 20, 2)


def is_linear(function, attack, middle=MIDDLE, long=LONG, square=SQUARE):
    """Tried three times: a busy machine may slow one measurement down, not all of them."""
    most = square * long / middle
    middle, long = attack(middle), attack(long)
    for _ in range(3):
        small, large = min(seconds(function, middle) for _ in range(3)), seconds(function, long)
        if large <= max(most * small, NOTHING):
            return True
    return False


def test_a_square_is_told_from_a_line():
    assert is_linear(lambda text: [ord(sign) for sign in text], ATTACKS["a"])
    assert not is_linear(lambda text: sum(len(text[at:]) for at in range(0, len(text), 2)), ATTACKS["a"])


def test_what_is_deep_ends_no_process():
    """The parser of JSON takes deeper texts than Python's own stack."""
    for depth in (500, 1000, 1020):
        for text in ("[" * depth + '"a"' + "]" * depth, '{"a":' * depth + '"b"' + "}" * depth):
            assert text_structure.entries(text) == []
            assert error_body.parse_error_body(400, text.encode()).status == 400
            assert text_call_formats.whole_calls(text, ["run_command"]) is None
    assert text_structure.entries(json.dumps({"Goal": [["go on"]]})) == ["Goal", "go on"]
    thoughts = "<think>a</think>" * sys.getrecursionlimit()
    assert summary_check.without_thoughts(f"{thoughts}done") == "done"
    assert inline_reasoning.split_thoughts(f"{thoughts}done")[0] == "done"

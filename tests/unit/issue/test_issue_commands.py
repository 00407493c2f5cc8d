"""What counts as an order and as a mention, and what only looks like one."""

import pytest

from agent.forge.base import Comment
from agent.issue.commands import calls, command_in, mentions, message_in

NAMES = ("makimono", "makimono[bot]")


def said(body, **more):
    return Comment("1", "alice", body, **more)


@pytest.mark.parametrize(
    ("body", "order"),
    [
        ("/stop", "stop"),
        ("/Pause", "pause"),
        ("\n\n/resume  \n", "resume"),
        ("/retry\r\n\r\nUse a decimal.", "retry"),
        ("  /stop\nPlease.", "stop"),
        ("@makimono /stop", "stop"),
        ("@makimono[bot]: /stop", "stop"),
        ("@Makimono, /retry", "retry"),
        ("/makimono /stop", "stop"),
        ("/Makimono: retry", "retry"),
        ("/makimono stop", "stop"),
        ("/makimono stop it", None),
        ("/makimonos /stop", None),
        ("> /makimono /stop", None),
        ("`/makimono stop`", None),
        ("/stop now", None),
        ("/stopped", None),
        ("Please /stop", None),
        ("Hello\n/stop", None),
        ("`/stop`", None),
        ("```\n/stop\n```", None),
        ("    /stop", None),
        ("\t/stop", None),
        ("> /stop", None),
        ("- /stop", None),
        ("//stop", None),
        ("/close", None),
        ("@alice /stop", None),
        ("<?order?>\n/stop", None),
        ("/stop\n<!-- x -->", "stop"),
        ("/stop\n---\nSent from afar", "stop"),
        ("<![CDATA[\n/stop\n]]>", None),
        ("<pre>\n/stop</pre>", None),
        (" \n" * 5000 + "/stop", "stop"),
        ("", None),
        ("\n\n", None),
    ],
)
def test_an_order_is_a_word_alone_on_the_first_line(body, order):
    assert command_in(said(body), NAMES) == order


def test_neither_an_edit_nor_a_machine_gives_orders_or_calls():
    for more in ({"is_edit": True}, {"is_bot": True}):
        assert command_in(said("/stop", **more), NAMES) is None
        assert mentions(said("@makimono go", **more), NAMES) is False


def test_what_stands_below_an_order_is_talk():
    assert message_in(said("/retry\r\n\r\nUse a decimal.\nAnd test it."), NAMES) == "Use a decimal.\nAnd test it."
    assert message_in(said("/stop"), NAMES) == ""
    assert message_in(said("Only talk\n/stop"), NAMES) == "Only talk\n/stop"


@pytest.mark.parametrize(
    ("body", "called"),
    [
        ("<!-- @makimono do it -->", False),
        ("So: <!-- @makimono do it --> done", False),
        ("<pre>\n@makimono do it\n</pre>", False),
        ("<blockquote>\n\n@makimono do it\n\n</blockquote>", False),
        ("<blockquote>\n\nx\n\n</blockquote>\n\n@makimono do it", True),
        ("> > @makimono do it", False),
        ("> quoted\n@makimono goes on lazily", False),
        ("- > @makimono do it", False),
        ('[x](https://a.example "@makimono do it")', False),
        ("[@makimono](https://a.example)", False),
        ("<?order @makimono do it ?>", False),
        ("<![CDATA[ @makimono do it ]]>", False),
        ('<p title="@makimono do it">x</p>', False),
        ("<div hidden>\n\n@makimono do it\n\n</div>", False),
        ("1. first\n\n       @makimono in code", False),
        ("`a\n@makimono b` c", False),
        ("**@makimono** and _more_", True),
        ("@makimono please add a test", True),
        ("Thanks @Makimono!", True),
        ("(@makimono)", True),
        ("Well, @makimono.", True),
        ("@makimono[bot] go on", True),
        ("a\n\n@makimono: b", True),
        ("@makimono-two", False),
        ("@makimono.two", False),
        ("@makimono/team", False),
        ("@makimonos", False),
        ("mail@makimono.example", False),
        ("x@makimono", False),
        ("https://example.org/@makimono", False),
        ("makimono, please", False),
        ("`@makimono`", False),
        ("```text\n@makimono\n```", False),
        ("~~~\n@makimono", False),
        ("> @makimono said so", False),
        ("    @makimono", False),
        ("> @alice wrote\n\n@makimono now you", True),
        ("`x` @makimono `y`", True),
        ("", False),
    ],
)
def test_a_mention_is_the_whole_name_outside_of_code_and_quotations(body, called):
    assert mentions(said(body), NAMES) is called


@pytest.mark.parametrize(
    ("body", "called"),
    [
        ("/makimono fix this", True),
        ("/makimono", True),
        ("\n/MAKIMONO, please\nfix this", True),
        ("hello @makimono", True),
        ("please /makimono fix this", False),
        ("hello\n/makimono fix this", False),
        ("> /makimono fix this", False),
        ("```\n/makimono fix this\n```", False),
        ("`/makimono` is how one calls it", False),
        ("/makimono/docs is gone", False),
        ("/makimono-web", False),
        ("@alice look", False),
    ],
)
def test_the_program_is_called_by_a_mention_or_by_its_name_at_the_beginning(body, called):
    assert calls(said(body), NAMES) is called
    for more in ({"is_edit": True}, {"is_bot": True}):
        assert calls(said(body, **more), NAMES) is False

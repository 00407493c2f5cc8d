"""What counts as an order and as a mention, and what only looks like one."""

import pytest

from agent.forge.base import Comment
from agent.run.words import mentions, order_in, talk_in

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
        ("", None),
        ("\n\n", None),
    ],
)
def test_an_order_is_a_word_alone_on_the_first_line(body, order):
    assert order_in(said(body), NAMES) == order


def test_neither_an_edit_nor_a_machine_gives_orders_or_calls():
    for more in ({"is_edit": True}, {"is_bot": True}):
        assert order_in(said("/stop", **more), NAMES) is None
        assert mentions(said("@makimono go", **more), NAMES) is False


def test_what_stands_below_an_order_is_talk():
    assert talk_in(said("/retry\r\n\r\nUse a decimal.\nAnd test it."), NAMES) == "Use a decimal.\nAnd test it."
    assert talk_in(said("/stop"), NAMES) == ""
    assert talk_in(said("Only talk\n/stop"), NAMES) == "Only talk\n/stop"


@pytest.mark.parametrize(
    ("body", "called"),
    [
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

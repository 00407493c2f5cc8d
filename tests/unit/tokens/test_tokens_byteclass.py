"""The byte-class estimate against a plain reading of its table, and its weak spots."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.tokens import byteclass
from agent.tokens.byteclass import CL100K, O200K, ByteClassCounter

HEADS = {0xC2: "two_byte", 0xE0: "e0", 0xE2: "e2", 0xE3: "e3", 0xE4: "han", 0xEA: "hangul", 0xEE: "e0", 0xEF: "ef"}


ASCII = (b" \t", b"a-z", b"A-Z", b"0-9", b"\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f!-/:-@\\[-`{-\\x7f", b"\\r\\n")


def reference(text, fit, factor=1.0):
    """The table, read with regular expressions, one feature after the other; beyond ASCII as in tokens.md section 7."""
    data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()

    def number(pattern):
        return len(re.findall(pattern, data, re.DOTALL))

    pairs = sum(
        weight * number(rb"(?<=[%s])[%s]" % (ASCII[before], ASCII[here]))
        for before, row in enumerate(fit.ascii)
        for here, weight in enumerate(row)
        if before > 0
    ) + sum(
        weight * number(rb"(?:(?<=[ \t\x80-\xff])|\A)[%s]" % ASCII[here]) for here, weight in enumerate(fit.ascii[0])
    )
    total = (
        pairs
        + fit.cjk_punct * number(rb"\xe3\x80")
        + fit.hiragana * number(rb"\xe3[\x81\x82]")
        + fit.other_e3 * number(rb"\xe3[\x83-\xbf]")
        + fit.han * number(rb"[\xe4-\xe9]")
        + fit.hangul * number(rb"[\xea-\xed]")
        + fit.ef * number(rb"[\xee\xef]")
        + fit.e2 * number(rb"\xe2")
        + fit.two_byte * number(rb"[\xc0-\xdf]")
        + fit.e0 * number(rb"[\xe0\xe1]")
        + fit.four_byte * number(rb"[\xf0-\xff]")
    )
    return max(round(total * factor / 1000), -(-len(data) // 128))


alphabet = st.one_of(
    st.characters(codec=None),
    st.sampled_from("aZ09 \t\r\n.-_あア、。漢字한글éЖ！─…😀\ud800\0ะ"),
)


@given(st.text(alphabet), st.sampled_from([O200K, CL100K, O200K.single_digits()]))
@example("HelloWorld x1Y2 Z\n\n  foo_bar", O200K)
@example("、。あアー", CL100K)
def test_the_fast_count_is_the_plain_reading_of_the_table(text, fit):
    assert ByteClassCounter(fit, 1.25).count(text) == reference(text, fit, 1.25)


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet, min_size=1, max_size=40), st.integers(0, 20))
def test_runs_go_on_over_the_borders_of_blocks_and_slices(text, shift):
    long = "x" * shift + text * (byteclass.BLOCK * 2 // len(text) + 1)
    assert ByteClassCounter().count(long) == reference(long, O200K)


def test_a_text_of_many_slices_is_counted_as_one():
    text = "The quick brown fox、速い茶色の狐 12345678 jumps.\n" * 6000
    assert len(text) > 3 * byteclass.SLICE
    assert ByteClassCounter().count(text) == reference(text, O200K)


def test_the_empty_text_is_free_and_no_other():
    counter = ByteClassCounter()
    assert counter.count("") == 0
    assert all(counter.count(letter) >= 1 for letter in (" ", "\n", "a", "\0", "\ud800", "é"))


def test_runs_of_spaces_cost_at_least_the_longest_token():
    assert ByteClassCounter().count(" " * 12_800) == 100


def test_long_arrays_of_numbers_cost_by_the_digit():
    assert ByteClassCounter().count("0.12345678901234567, " * 500) > 500 * 7


def test_an_estimate_says_that_it_is_one():
    counter = ByteClassCounter(CL100K)
    assert not counter.exact
    assert counter.name == "bytes:cl100k"

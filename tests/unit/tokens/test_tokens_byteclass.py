"""The byte-class estimate against a plain reading of its table, and its weak spots."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.tokens import byteclass
from agent.tokens.byteclass import CL100K, O200K, ByteClassCounter

HEADS = {0xC2: "two_byte", 0xE0: "e0", 0xE2: "e2", 0xE3: "e3", 0xE4: "han", 0xEA: "hangul", 0xEE: "e0", 0xEF: "ef"}


def reference(text, fit, factor=1.0, per_digit=400):
    """The table of tokens.md section 7, read with regular expressions, one feature after the other."""
    data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()

    def number(pattern):
        return len(re.findall(pattern, data, re.DOTALL))

    runs = number(rb"[0-9]+")
    total = (
        fit.lower_start * number(rb"(?<![A-Za-z])[a-z]")
        + fit.upper_start * number(rb"[A-Z]+")
        + fit.lower * number(rb"[a-z]")
        + fit.upper * number(rb"[A-Z]")
        + fit.digit_start * runs
        + fit.punct_start * number(rb"[\x00-\x08\x0b\x0c\x0e-\x1f!-/:-@\[-`{-\x7f]+")
        + fit.punct * number(rb"[\x00-\x08\x0b\x0c\x0e-\x1f!-/:-@\[-`{-\x7f]")
        + fit.newline_start * number(rb"[\r\n]+")
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
    total += max(0, per_digit * number(rb"[0-9]") - fit.digit_start * runs)
    return max(round(total * factor / 1000), -(-len(data) // 128))


alphabet = st.one_of(
    st.characters(codec=None),
    st.sampled_from("aZ09 \t\r\n.-_あア、。漢字한글éЖ！─…😀\ud800\0ะ"),
)


@given(st.text(alphabet), st.sampled_from([O200K, CL100K]), st.sampled_from([400, 1000]))
@example("HelloWorld x1Y2 Z\n\n  foo_bar", O200K, 400)
@example("、。あアー", CL100K, 400)
def test_the_fast_count_is_the_plain_reading_of_the_table(text, fit, per_digit):
    assert ByteClassCounter(fit, 1.25, per_digit).count(text) == reference(text, fit, 1.25, per_digit)


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

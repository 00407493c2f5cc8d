"""The byte-class estimate against a plain reading of its tables, character by character."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.tokens import byteclass, counter_for
from agent.tokens.base import FAMILIES
from agent.tokens.byteclass import BEYOND, BLOCK, KEPT, LONG_RUN, STEP, ByteClassCounter, class_of, long_runs
from agent.tokens.estimate_weights import document, fit_named

FITS = tuple(document()["fits"])


def reference(text, fit):
    """The tables, read one character after the other; blocks are texts of their own."""
    thousandths = sum(block(text[start : start + BLOCK], fit) for start in range(0, len(text), BLOCK))
    return max(round(thousandths / 1000), 1 if text else 0)


def block(text, fit):
    extra, place, parts = 0.0, 0, []
    while place < len(text):
        end = place
        while end < len(text) and text[end] == text[place]:
            end += 1
        rate = fit.runs.get(text[place])
        if end - place >= LONG_RUN and rate is not None:
            extra += 1000 * rate * (end - place - KEPT)
            parts.append(text[place] * KEPT)
        else:
            parts.append(text[place:end])
        place = end
    text = "".join(parts)
    steps, before = 0, 0
    for letter in text:
        mixed = not text.isascii()
        here = BEYOND if ord(letter) > 127 or (mixed and letter == "?") else class_of(ord(letter))
        steps += fit.pairs[16 * before + here]
        before = here
    near, far = byteclass.code_units(text) if not text.isascii() else (b"", b"")
    steps += sum(fit.near[unit] for unit in near) + sum(fit.far[unit] for unit in far)
    return steps * STEP + extra


alphabet = st.one_of(
    st.characters(codec=None),
    st.sampled_from("aZ09 \t\r\n.-_あア、。漢字한글éЖ！─…😀\ud800\0ะ?"),
)


@given(st.text(alphabet), st.sampled_from(FITS))
@example("HelloWorld x1Y2 Z\n\n  foo_bar", "o200k")
@example("、。あアー?", "cl100k")
@example("x" * 47 + "y" + "=" * 48 + "\n" + "─" * 90, "unknown")
def test_the_fast_count_is_the_plain_reading_of_the_tables(text, name):
    fit = fit_named(name)
    assert ByteClassCounter(fit).weigh(text) == reference(text, fit)


@given(
    st.text(alphabet, max_size=20),
    st.sampled_from("=x0 \n─█あ\ud800"),
    st.integers(0, 130),
    st.text(alphabet, max_size=20),
)
def test_every_run_that_is_long_enough_is_found_and_no_other(before, sign, length, after):
    text = before + sign * length + after
    found = long_runs(text)
    expected, place = [], 0
    while place < len(text):
        end = place + 1
        while end < len(text) and text[end] == text[place]:
            end += 1
        if end - place >= LONG_RUN:
            expected.append((place, end))
        place = end
    assert found == expected


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet, min_size=1, max_size=40), st.integers(0, 20))
@example("ecca", 12)
def test_a_text_of_several_blocks_is_the_sum_of_them(text, shift):
    long = "x" * shift + text * (BLOCK * 2 // len(text) + 1)
    fit = fit_named("unknown")
    assert ByteClassCounter(fit).count(long) == reference(long, fit)


@pytest.mark.parametrize("name", FITS)
def test_characters_of_ascii_weigh_nothing_as_code_units(name):
    fit = fit_named(name)
    for letter in map(chr, range(128)):
        units = letter.encode("utf-16-be")
        assert fit.near[16 * digit(byteclass.NEAR_BOTH, units[0]) + digit(byteclass.NEAR_BOTH, units[1])] == 0
        assert fit.far[16 * digit(byteclass.FAR_HIGH, units[0]) + digit(byteclass.FAR_LOW, units[1])] == 0


def digit(table, byte):
    return int(chr(table[byte]), 16)


@pytest.mark.parametrize("name", FITS)
def test_no_weight_is_too_large_for_the_sum_in_c(name):
    fit = fit_named(name)
    assert max(fit.pairs + fit.near + fit.far) <= byteclass.HEAVIEST
    assert byteclass.HEAVIEST * byteclass.AT_ONCE < 65_521


@given(st.text(alphabet, min_size=1), st.sampled_from(FITS))
def test_only_the_empty_text_is_free(text, name):
    counter = ByteClassCounter(fit_named(name))
    assert counter.count("") == 0
    assert counter.count(text) >= 1


@pytest.mark.parametrize("name", FITS)
def test_more_text_of_any_block_of_unicode_costs_more(name):
    counter = ByteClassCounter(fit_named(name))
    for start in (*range(0, 0xD800, 0x80), *range(0xE000, 0x20000, 0x80)):
        letters = "".join(map(chr, range(start, start + 0x80)))
        assert 0 < counter.count(letters) <= counter.count(letters * 3) <= 4 * counter.count(letters) + 4


def test_every_family_has_its_fit():
    assert {family.fit for family in FAMILIES} | {"unknown"} == set(FITS)


def test_an_estimate_says_that_it_is_one():
    counter = counter_for("gpt-4", prefer="bytes").plain
    assert not counter.exact
    assert counter.name == "bytes:cl100k"


def test_scripts_of_two_bytes_and_of_three_in_one_text_are_weighed_as_each_alone():
    russian = "Сначала добавьте тест, потом исправьте функцию и проверьте сумму счёта.\n" * 6
    hindi = "पहले एक परीक्षण जोड़ें, फिर फलन बदलें और बिल का कुल योग देखें।\n" * 6
    thai = "ให้เพิ่มการทดสอบก่อน แล้วจึงแก้ไขฟังก์ชัน\n" * 6
    counter = ByteClassCounter(fit_named("o200k"))
    alone = sum(map(counter.weigh, (russian, hindi, thai)))
    assert counter.weigh(russian + hindi + thai) == pytest.approx(alone, rel=0.03)


def test_vietnamese_is_one_script():
    text = "Hãy thêm một bài kiểm thử trước, rồi mới sửa hàm. Nếu không kết nối được với máy chủ, chờ một lát.\n" * 9
    assert not all(byteclass.code_units(text))

"""The cap and the masks over long text, as properties."""

from hypothesis import given, settings
from hypothesis import strategies as st
from length import either

from agent.tools import lines, truncate
from agent.tools.encodings import size_of
from agent.tools.outputs import Outputs, StoredOutput, masked

TEXTS = st.lists(
    st.tuples(st.sampled_from(["a", "漢字", "word ", "\\x", "😀"]), st.integers(0, 900)).map(
        lambda pair: pair[0] * pair[1]
    ),
    max_size=40,
).map("\n".join)


@settings(max_examples=either(25, 100), deadline=None)
@given(TEXTS, st.integers(500, 20_000))
def test_what_is_shown_fits_the_room_and_comes_from_the_text(text, room):
    cut = truncate.truncate(text, room)
    if cut is None:
        assert size_of(text) <= room
        assert all(len(line) <= truncate.LINE for line in text.split("\n"))
        return
    whole = StoredOutput("outputs/0001.txt", text.count("\n") + 1, size_of(text))
    shown = cut.text(whole)
    assert size_of(shown) <= room
    assert "read_output(" in shown
    kept = [line for line in (cut.head + "\n" + cut.tail).split("\n") if "characters left out" not in line]
    assert set(kept) <= {*text.split("\n"), ""}


@settings(max_examples=either(25, 100), deadline=None)
@given(TEXTS, st.integers(1, 500), st.integers(1, 300))
def test_lines_come_whole_or_with_head_tail_and_count(text, keep, size):
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    found = list(lines.split(chunks, keep=keep))
    wanted = text.removesuffix("\n").split("\n") if text else []
    assert len(found) == len(wanted)
    for line, want in zip(found, wanted, strict=True):
        assert len(line.head) + line.missing + len(line.tail) == len(want)
        assert want.startswith(line.head)
        assert want.endswith(line.tail)
        assert len(line.head) + len(line.tail) <= 2 * keep


SECRET = "first line of a key\nsecond line\nthird line"


@settings(max_examples=either(50, 200), deadline=None)
@given(
    st.lists(st.sampled_from(["plain\n", "x", SECRET, "\n", "first line of a key\n"]), max_size=60), st.integers(1, 40)
)
def test_masking_in_pieces_is_masking_the_whole(parts, size):
    text = "".join(parts)
    chunks = [text[start : start + size] for start in range(0, len(text), size)]

    def mask(one):
        return one.replace(SECRET, "***")

    assert "".join(masked(chunks, mask, step=300)) == mask(text)


def test_a_text_without_line_ends_is_masked_in_bounded_pieces():
    pieces = list(masked(("x" * 100 for _ in range(1000)), str.upper, step=200))
    assert "".join(pieces) == "X" * 100_000
    assert max(map(len, pieces)) < 5000


def test_stored_outputs_count_their_lines(tmp_path):
    outputs = Outputs(tmp_path)
    assert outputs.store(["a\nb", "\nc"]) == StoredOutput("outputs/0001.txt", 3, 5)
    assert outputs.store(["a\n"]).lines == 1
    assert outputs.store([]).lines == 0
    (tmp_path / "outputs" / "0004.txt").write_text("there already")
    assert outputs.store(["x"]).name == "outputs/0005.txt"

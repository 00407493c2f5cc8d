"""edit_file and write_file: nothing but the edited text changes, in every encoding and with every line end."""

import codecs
import os
import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from length import either

from agent.tools import edit, encodings
from agent.tools.edit_file import apply_changes
from agent.tools.encodings import detect
from agent.tools.write_file import with_ends_of

JAPANESE = "これはテストです。\n処理を開始する\nデータを読み込みます\n"
LATIN = "# Größe prüfen\nvoilà un café, s'il vous plaît\nñandú\n"
ENCODINGS = {
    "UTF-8": (JAPANESE + LATIN, "utf-8", b""),
    "UTF-8 with BOM": (JAPANESE + LATIN, "utf-8", codecs.BOM_UTF8),
    "UTF-16 LE": (JAPANESE + LATIN + "😀\n", "utf-16-le", codecs.BOM_UTF16_LE),
    "UTF-16 BE": (JAPANESE + LATIN + "😀\n", "utf-16-be", codecs.BOM_UTF16_BE),
    "UTF-32 LE": (JAPANESE + LATIN, "utf-32-le", codecs.BOM_UTF32_LE),
    "Latin-1": (LATIN, "latin-1", b""),
    "Windows-1252": (LATIN + "“quoted” – 5 €\n", "cp1252", b""),
    "Shift_JIS": (JAPANESE, "cp932", b""),
    "EUC-JP": (JAPANESE, "euc_jp", b""),
    "ISO-2022-JP": (JAPANESE, "iso2022_jp", b""),
}


def edited(box, path, old, new, **more):
    return box.run("edit_file", {"path": path, "old_text": old, "new_text": new, **more})


# --- what only one line may change --------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "mixed"])
@pytest.mark.parametrize("label", ENCODINGS)
def test_a_one_line_edit_changes_one_line_only(box, tree, label, end):
    body, codec, mark = ENCODINGS[label]
    lines = ["begin", *body.strip("\n").split("\n"), "value = 1", *body.strip("\n").split("\n"), "the end"]
    ends = ["\r\n", "\n"] * len(lines) if end == "mixed" else [end] * len(lines)
    ends = [*ends[: len(lines) - 1], ""]  # no final newline
    before = [(line + one).encode(codec) for line, one in zip(lines, ends, strict=True)]
    (tree / "a").write_bytes(mark + b"".join(before))
    shown = box.run("read_file", {"path": "a"}).content
    assert "value = 1" in shown
    assert label == "UTF-8" or label in shown
    result = edited(box, "a", "value = 1", "value = 22")
    assert result.status == "success", result.content
    place = lines.index("value = 1")
    before[place] = ("value = 22" + ends[place]).encode(codec)
    assert (tree / "a").read_bytes() == mark + b"".join(before)


@pytest.mark.parametrize("label", ENCODINGS)
def test_text_of_the_file_itself_can_be_edited(box, tree, label):
    body, codec, mark = ENCODINGS[label]
    (tree / "a").write_bytes(mark + body.replace("\n", "\r\n").encode(codec))
    first, second = body.split("\n")[:2]
    result = edited(box, "a", f"{first}\n{second}\n", f"{first}\nadded\n{second}\n")
    assert result.status == "success", result.content
    changed = body.replace(f"{first}\n", f"{first}\nadded\n").replace("\n", "\r\n")
    assert (tree / "a").read_bytes() == mark + changed.encode(codec)


def _lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


WORDS = st.sampled_from(["x = 1", "", "あ", "漢字", "  y", "é", "end", "\ttab"])
ENDS = st.sampled_from(["\n", "\r\n"])


@settings(max_examples=either(37, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.tuples(WORDS, ENDS), min_size=1, max_size=12),
    last=st.booleans(),
    place=st.integers(0, 11),
    mark=st.sampled_from([b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE]),
    count=st.integers(0, 3),
)
def test_only_the_bytes_of_the_edited_text_differ(lines, last, place, mark, count):
    place %= len(lines)
    lines[place] = ("UNIQUE", lines[place][1])
    if last:
        lines[-1] = (lines[-1][0], "")
    raw = "".join(line + end for line, end in lines)
    codec = "utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-8"
    data = mark + raw.encode(codec)
    form = detect(data)
    assert form is not None
    # The model gives the lines around it, with \n, and puts `count` new lines in.
    first, final = max(0, place - 1), min(len(lines), place + 2)
    old = "\n".join(line for line, _ in lines[first:final])
    new = old.replace("UNIQUE", "\n".join(["CHANGED"] * (count + 1)))
    view, places, was, now = edit.find(encodings.decode(data, form), old, new)
    assert len(places) == 1
    result = apply_changes(data, form, edit.changes(view, places, was, now))
    start = data.index("UNIQUE".encode(codec))
    size = len("UNIQUE".encode(codec))
    assert result.startswith(data[:start])
    assert result.endswith(data[start + size :])
    middle = result[start : len(result) - len(data[start + size :])].decode(codec)
    ends = {end for _, end in lines if end} or {"\n"}
    assert middle.replace("\r\n", "\n") == "\n".join(["CHANGED"] * (count + 1))
    if count and "\r\n" not in ends:
        assert "\r" not in middle
    if count and "\n" not in ends:
        assert middle.count("\r\n") == count


@settings(max_examples=either(50, 200), deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=30).map("".join),
    st.text(alphabet="ab\n", min_size=1, max_size=6),
    st.text("xy\n", max_size=4),
)
def test_an_edit_seen_through_unified_line_ends_is_a_plain_replacement(raw, old, new):
    data = raw.encode()
    view, places, was, now = edit.find(raw, old, new)
    assert places == [] or old == was
    result = apply_changes(data, encodings.UTF8, edit.changes(view, places, was, now)).decode()
    assert edit.normalize_newlines(result) == edit.normalize_newlines(raw).replace(old, new)
    if "\r" not in raw:
        assert result == raw.replace(old, new)


def test_line_ends_at_the_place_are_taken_for_what_is_added(box, tree):
    (tree / "a").write_bytes(b"one\r\ntwo\nthree\r\nfour")
    assert edited(box, "a", "two", "two\n2b").status == "success"
    assert edited(box, "a", "three", "three\n3b").status == "success"
    assert edited(box, "a", "four", "four\nfive\n").status == "success"
    assert (tree / "a").read_bytes() == b"one\r\ntwo\n2b\nthree\r\n3b\r\nfour\r\nfive\r\n"


def test_deleting_a_line_takes_its_end_along(box, tree):
    (tree / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    edited(box, "a", "two\n", "")
    assert (tree / "a").read_bytes() == b"one\r\nthree\r\n"


def test_a_model_that_sends_crlf_is_understood(box, tree):
    (tree / "a").write_bytes(b"one\ntwo\n")
    edited(box, "a", "one\r\ntwo\r\n", "one\r\n2\r\n")
    assert (tree / "a").read_bytes() == b"one\n2\n"


def test_a_blank_line_is_two_line_ends_not_a_split_one(box, tree):
    (tree / "a").write_bytes(b"one\r\ntwo\r\n\r\nthree")
    assert "not in a" in edited(box, "a", "one\n\ntwo", "x").content
    edited(box, "a", "two\n\nthree", "two\nthree")
    assert (tree / "a").read_bytes() == b"one\r\ntwo\r\nthree"


# --- which text ----------------------------------------------------------------------------------------------


def test_a_text_that_is_there_more_than_once_is_refused_with_its_lines(box, tree):
    (tree / "a").write_text("x\ny\nx\nx\n")
    result = edited(box, "a", "x", "z")
    assert result.status == "error"
    assert "3 times in a (lines 1, 3, 4)" in result.content
    assert edited(box, "a", "x", "z", replace_all=True).content == "[edited a: 3 places, lines 1, 3, 4]"
    assert (tree / "a").read_text() == "z\ny\nz\nz\n"


def test_a_text_that_is_not_there_is_answered_with_the_nearest_lines(box, tree):
    (tree / "a.py").write_text("def one():\n    return 1\n\n\ndef two():\n    return 2\n")
    result = edited(box, "a.py", "def one():\n  return 1", "x")
    assert "The nearest is at line 1:\ndef one():\n    return 1" in result.content
    assert "line 6:\n    return 2" in edited(box, "a.py", "retrun 2", "x").content
    assert "Read the file again" in edited(box, "a.py", "completely different", "x").content


def test_the_hint_stays_small_in_a_large_file(box, tree):
    (tree / "a").write_text("".join(f"{number} some quite similar line of text\n" for number in range(50_000)))
    result = edited(box, "a", "12 some qu1te similar line of text", "x")
    assert "nearest is at line" in result.content
    assert len(result.content) < 1000


def test_the_same_text_twice_is_refused(box, tree):
    (tree / "a").write_text("x\n")
    assert "the same" in edited(box, "a", "x", "x").content


def test_text_as_it_is_shown_without_invisible_characters_is_found(box, tree):
    (tree / "a.md").write_text("⚠\ufe0f Warning\nnext\u200b line\nlast\n")
    assert edited(box, "a.md", "⚠ Warning\nnext line", "⚠ Warning\nnext row").status == "success"
    assert (tree / "a.md").read_text() == "⚠\ufe0f Warning\nnext\u200b row\nlast\n"
    assert edited(box, "a.md", "⚠ Warning", "⚠ Caution").status == "success"
    assert (tree / "a.md").read_text().startswith("⚠\ufe0f Caution\n")


def test_what_the_sanitiser_takes_out_does_not_stand_in_the_way_of_an_edit(box, tree):
    raw = "red = '\x1b[31m'\u202e\r\nsecond\u2028line \u2800x\r\nthird\r\n"
    (tree / "a").write_bytes(raw.encode())
    shown = box.run("read_file", {"path": "a"}).content.split("\n", 1)[1]
    assert shown == "red = ''\nsecond\nline x\nthird"
    assert edited(box, "a", shown, shown.replace("line x", "line y")).status == "success"
    assert (tree / "a").read_bytes() == raw.replace("x\r\nthird", "y\r\nthird").encode()


def test_composed_text_is_found_decomposed(box, tree):
    (tree / "a").write_text("fu\u0308r\n")
    assert edited(box, "a", "für", "über").status == "success"
    assert (tree / "a").read_text() == "u\u0308ber\n"


# --- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        "Привет, мир. Это текст.".encode("cp1251"),
        "Привет, мир. Это текст.".encode("koi8-r"),
        "这是一个测试文件，内容是中文。".encode("gb2312"),
        "這是一個測試文件".encode("big5"),
        "이것은 시험 파일입니다".encode("euc-kr"),
        "処理開始".encode("euc_jp"),
        "ﾃｽﾄ".encode("cp932"),
        b"abc \xff\xfe\xfd def",
        "これはテスト".encode("cp932") + b"\xff",
        "これは".encode() + "テスト".encode("cp932"),
        b"\xef\xbb\xbfabc\xff",
        b"\xff\xfeab",
        b"caf\xe9 \x01\x02",
    ],
)
def test_an_unknown_encoding_is_readable_and_never_edited_or_overwritten(box, tree, data):
    data += b"\nplain = 1\n"
    (tree / "a").write_bytes(data)
    assert box.run("read_file", {"path": "a"}).status == "success"
    result = edited(box, "a", "plain = 1", "plain = 2")
    assert result.status == "error"
    assert "encoding is not known" in result.content or "binary" in result.content
    result = box.run("write_file", {"path": "a", "content": "x"})
    assert result.status == "error"
    assert "rm in run_command" in result.content
    assert (tree / "a").read_bytes() == data


@pytest.mark.parametrize("words", ["café", "señor", "für", "naïve", "œuvre", "“x”", "à", "10 °C", "© 2024 Müller"])
def test_short_western_text_is_recognised(words):
    form = detect(words.encode("cp1252") + b"\n")
    assert form is not None
    assert form.codec in ("latin-1", "cp1252")


KANA = st.text(
    alphabet="あいうえおかきくけこさしすせそたちつてとなにのはまみもやよらりるれをんアイウカキクコサシスタテトナニラリルレロン",
    min_size=3,
)
KANJI = st.text(alphabet="処理開始終了設定値取得東京日本語入力出力関数変更確認済", max_size=4)


@settings(max_examples=either(25, 100), deadline=None)
@given(st.lists(st.tuples(KANA, KANJI), min_size=1, max_size=5), st.sampled_from(["cp932", "euc_jp", "iso2022_jp"]))
def test_japanese_with_kana_is_recognised(parts, codec):
    words = "x = 1  # " + "、".join(kana + kanji for kana, kanji in parts) + "\n"
    form = detect(words.encode(codec))
    assert form is not None
    assert form.codec == codec


@settings(max_examples=either(75, 300), deadline=None)
@given(st.binary(max_size=60))
def test_detection_never_claims_what_does_not_decode(data):
    form = detect(data)
    if form is not None:
        assert form.bom + encodings.decode(data, form).encode(form.codec) is not None


def test_a_character_that_the_encoding_lacks_is_refused_by_name(box, tree):
    (tree / "a").write_bytes(JAPANESE.encode("cp932"))
    result = edited(box, "a", "これ", "これ😀")
    assert "GRINNING FACE" in result.content
    assert "Shift_JIS" in result.content
    assert (tree / "a").read_bytes() == JAPANESE.encode("cp932")
    assert edited(box, "a", "これ", "これ〜−").status == "success"
    assert (tree / "a").read_bytes() == JAPANESE.replace("これ", "これ～－").encode("cp932")


def test_vendor_duplicates_in_shift_jis_keep_their_bytes(box, tree):
    raw = JAPANESE.encode("cp932") + b"\xed\x40 \xfa\x5c \x87\x90\r\nvalue = 1\r\n"
    (tree / "a").write_bytes(raw)
    assert edited(box, "a", "value = 1", "value = 2").status == "success"
    assert (tree / "a").read_bytes() == raw.replace(b"value = 1", b"value = 2")


def test_binary_and_large_files_are_refused(box, tree):
    (tree / "a.bin").write_bytes(b"abc\0def")
    assert "binary" in edited(box, "a.bin", "abc", "x").content
    with (tree / "big").open("wb") as file:
        file.truncate(10_000_001)
    assert "10.0 MB are not edited" in edited(box, "big", "abc", "x").content


# --- writing -------------------------------------------------------------------------------------------------


def test_new_files_get_their_folders(box, tree):
    assert box.run("write_file", {"path": "a/b/c.txt", "content": "x\ny\n"}).content == (
        "[wrote a/b/c.txt: new file, 2 lines]"
    )
    assert (tree / "a/b/c.txt").read_text() == "x\ny\n"
    assert stat.S_IMODE((tree / "a/b/c.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE((tree / "a/b").stat().st_mode) == 0o755
    assert "part of this path is a file" in box.run("write_file", {"path": "a/b/c.txt/d", "content": "x"}).content
    assert "folder" in box.run("write_file", {"path": "a/b", "content": "x"}).content


def test_encoding_mark_line_ends_and_mode_stay(box, tree):
    (tree / "a.bat").write_bytes("これはテスト\r\nです\r\n".encode("cp932"))
    (tree / "a.bat").chmod(0o755)
    result = box.run("write_file", {"path": "a.bat", "content": "これはテスト\nでした\n"})
    assert result.content == "[wrote a.bat: 2 lines, replaced; Shift_JIS, CRLF kept]"
    assert (tree / "a.bat").read_bytes() == "これはテスト\r\nでした\r\n".encode("cp932")
    assert stat.S_IMODE((tree / "a.bat").stat().st_mode) == 0o755
    (tree / "b").write_bytes(codecs.BOM_UTF8 + b"x\n")
    box.run("write_file", {"path": "b", "content": "y\n"})
    assert (tree / "b").read_bytes() == codecs.BOM_UTF8 + b"y\n"
    assert "already" in box.run("write_file", {"path": "b", "content": "y\n"}).content


def test_unchanged_lines_of_a_mixed_file_keep_their_ends():
    assert with_ends_of("a\r\nb\nc\r\nd\n", "a\nb\nX\nd\n") == "a\r\nb\nX\r\nd\n"
    assert with_ends_of("a\r\nb\r\nc", "a\nb\nc\nd") == "a\r\nb\r\nc\r\nd"
    assert with_ends_of("", "a\nb") == "a\nb"
    assert with_ends_of("a", "b\nc") == "b\nc"


@settings(max_examples=either(25, 100), deadline=None)
@given(
    st.lists(st.tuples(WORDS, ENDS), max_size=8),
    st.lists(WORDS, max_size=8),
)
def test_written_text_is_the_text_with_other_ends(old, new):
    before = "".join(line + end for line, end in old)
    content = "\n".join(new)
    assert edit.normalize_newlines(with_ends_of(before, content)) == content
    assert with_ends_of(before, edit.normalize_newlines(before)) == before


def test_a_file_that_was_a_hard_link_or_read_only_is_replaced_beside_it(box, tree, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("old\n")
    os.link(outside, tree / "a")
    (tree / "a").chmod(0o444)
    assert edited(box, "a", "old", "new").status == "success"
    assert outside.read_text() == "old\n"
    assert (tree / "a").read_text() == "new\n"


def test_a_pipe_in_the_place_of_the_temporary_file_does_not_hang(box, tree):
    os.mkfifo(tree / f".a.{os.getpid()}.tmp")
    assert box.run("write_file", {"path": "a", "content": "x" * 100_000}).status == "success"
    assert (tree / "a").stat().st_size == 100_000
    assert os.listdir(tree) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_as_root_new_files_belong_to_the_owner_of_the_tree(make_box, tree):
    os.chown(tree, 12345, 23456)
    box = make_box(owner_uid=12345)
    box.run("write_file", {"path": "d/a", "content": "x"})
    for path in (tree / "d", tree / "d/a"):
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)
    os.chown(tree / "d/a", 777, 888)
    edited(box, "d/a", "x", "y")
    assert ((tree / "d/a").stat().st_uid, (tree / "d/a").stat().st_gid) == (777, 888)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(box, tree):
    (tree / "d").mkdir(mode=0o555)
    result = box.run("write_file", {"path": "d/a", "content": "x"})
    assert result.status == "error"
    assert "Permission denied" in result.content


def test_the_diff_of_an_edit_is_one_line(box, tree):
    before = [f"line {number}\r\n" if number % 3 else f"line {number}\n" for number in range(300)]
    (tree / "a").write_bytes("".join(before).encode())
    edited(box, "a", "line 149\nline 150\nline 151", "line 149\nline 150!\nline 151")
    after = _lines_of((tree / "a").read_bytes())
    diff = [number for number, (one, other) in enumerate(zip(before, after, strict=True)) if one.encode() != other]
    assert diff == [150]

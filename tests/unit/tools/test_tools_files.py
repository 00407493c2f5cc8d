"""Reading, listing and searching in trees that mean no good."""

import os
import socket
import unicodedata

import pytest

from agent.globs import matcher
from agent.tools.search_text_process import OVERLAP, PIECE


def content(box, name, **arguments):
    return box.run(name, arguments).content


# --- reading -------------------------------------------------------------------------------------------------


def test_lines_are_counted_from_one(box, tree):
    (tree / "a.txt").write_text("one\ntwo\nthree\n")
    assert content(box, "read_file", path="a.txt") == "[a.txt: lines 1-3 of 3]\none\ntwo\nthree"
    assert content(box, "read_file", path="a.txt", offset=2, limit=1) == (
        "[a.txt: lines 2-2 of 3; go on with offset=3]\ntwo"
    )
    assert "has 3 lines; offset 4 is behind them" in content(box, "read_file", path="a.txt", offset=4)


def test_the_tree_is_work_for_commands_and_so_for_paths(box, tree):
    (tree / "d").mkdir()
    (tree / "d" / "a").write_text("x\n")
    for path in ("d/a", "/work/d/a", "./d//a", f"{tree}/d/a"):
        assert content(box, "read_file", path=path) == "[d/a: lines 1-1 of 1]\nx"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/etc/passwd", "outside the work tree"),
        ("../metadata.json", "'..'"),
        ("a/../../x", "'..'"),
        ("/work/../x", "'..'"),
        (".git", "git commands"),
        (".GIT/config", "git commands"),
        ("sub/.git/hooks/x", "git commands"),
        (".g\u200cit/config", "git commands"),
        ("git~1/config", "git commands"),
        ("a\0b", "character"),
        (".", "is a folder"),
        ("/work", "is a folder"),
    ],
)
@pytest.mark.parametrize("tool", ["read_file", "edit_file", "write_file"])
def test_paths_that_are_refused(box, tree, tool, path, words):
    more = {"edit_file": {"old_text": "a", "new_text": "b"}, "write_file": {"content": "x"}}.get(tool, {})
    (tree / ".git").write_text("gitdir: /git\n")
    result = box.run(tool, {"path": path, **more})
    assert result.status == "error"
    assert words in result.content
    assert (tree / ".git").read_text() == "gitdir: /git\n"


@pytest.mark.parametrize("path", ["missing.txt", "~/.ssh/id_rsa"])
def test_a_file_that_is_not_there_is_refused_by_tools_that_need_one(box, path):
    for tool, more in (("read_file", {}), ("edit_file", {"old_text": "a", "new_text": "b"})):
        result = box.run(tool, {"path": path, **more})
        assert (result.status, "no such file" in result.content) == ("error", True)


def test_a_missing_file_is_answered_with_the_nearest_names(box, tree):
    (tree / "src").mkdir()
    (tree / "src" / "widget.py").write_text("x")
    assert "did you mean src/widget.py?" in content(box, "read_file", path="src/wigdet.py")


def test_links_pipes_and_sockets_are_refused_without_hanging(box, tree, tmp_path):
    (tmp_path / "secret").write_text("do not read")
    (tree / "link").symlink_to(tmp_path / "secret")
    (tree / "folder").symlink_to(tmp_path)
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(tree)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        for path in ("link", "folder/secret", "pipe", "socket"):
            for tool, more in (
                ("read_file", {}),
                ("edit_file", {"old_text": "do", "new_text": "x"}),
                ("write_file", {"content": "x"}),
                ("search_text", {"pattern": "do"}),
            ):
                result = box.run(tool, {"path": path, **more})
                assert "do not" not in result.content, (tool, path)
                assert result.status == "error", (tool, path)
    assert "symbolic link (to " in content(box, "read_file", path="link")
    assert "folder is a symbolic link" in content(box, "read_file", path="folder/secret")
    assert "named pipe" in content(box, "read_file", path="pipe")
    assert (tmp_path / "secret").read_text() == "do not read"
    listed = content(box, "list_files")
    assert "pipe (named pipe)" in listed
    assert f"link -> {tmp_path}/secret" in listed
    assert "metadata" not in listed
    assert "no match" in content(box, "search_text", pattern="do not")


def test_binary_files_are_told_by_kind_and_size(box, tree):
    (tree / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(1000))
    (tree / "b.bin").write_bytes(b"abc\0def" * 10)
    (tree / "late.bin").write_bytes(b"a" * 100_000 + b"\0")
    (tree / "doc.pdf").write_bytes(b"%PDF-1.7\n% text only")
    (tree / "notes.txt").write_text("BZh is how bzip2 files begin, MZ is how programs do\n")
    assert (
        content(box, "read_file", path="a.png")
        == "a.png: binary file (PNG image, 1,008 bytes); its content is not shown"
    )
    assert "binary file (data, 70 bytes)" in content(box, "read_file", path="b.bin")
    assert "binary file" in content(box, "read_file", path="late.bin")
    assert "PDF document" in content(box, "read_file", path="doc.pdf")
    assert "BZh is" in content(box, "read_file", path="notes.txt")


def test_an_empty_file_says_so(box, tree):
    (tree / "a").write_bytes(b"")
    assert content(box, "read_file", path="a") == "a: empty file"


def test_a_long_line_is_shortened_and_the_line_numbers_stay(make_box, tree):
    box = make_box(cap_chars=8000)
    (tree / "min.js").write_text("first\n" + "x" * 119_000 + "\nthird\n")
    text = content(box, "read_file", path="min.js")
    assert len(text) < 8000
    assert text.startswith("[min.js: lines 1-3 of 3]\nfirst\nxxx")
    assert "characters left out" in text
    assert text.endswith("\nthird")
    (tree / "one").write_text("y" * 5_000_000)
    result = box.run("read_file", {"path": "one"})
    assert len(result.content) < 8000
    assert result.output is None


def test_a_page_ends_where_its_room_ends_and_pages_join(make_box, tree):
    box = make_box(cap_chars=3000)
    lines = [f"line number {number} of the file" for number in range(1, 1001)]
    (tree / "a").write_text("\n".join(lines))
    offset, seen = 1, []
    while True:
        result = box.run("read_file", {"path": "a", "offset": offset})
        assert len(result.content.encode()) <= 3000
        assert result.output is None
        head, *page = result.content.split("\n")
        seen += page
        if "go on" not in head:
            break
        offset = int(head.split("offset=")[1].rstrip("]"))
    assert seen == lines


def test_a_sparse_file_of_a_gigabyte_is_read_far_inside_without_loading_it(box, tree):
    import tracemalloc

    with (tree / "big").open("wb") as file:
        for _ in range(8):
            file.write(b"a line of text\n" * 70_000)
            file.write(b"")
        file.write(b"the end\n")
        size = file.tell()
    assert size > 8_000_000
    tracemalloc.start()
    try:
        text = content(box, "read_file", path="big", offset=560_001)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text.endswith("\nthe end")
    assert peak < 30_000_000


def test_lines_before_the_offset_are_skipped_alike_in_every_encoding(box, tree):
    lines = [f"{number}: あいう漢字テスト" for number in range(1, 2_001)]
    for codec in ("utf-8", "utf-16", "cp932", "euc_jp", "iso2022_jp"):
        (tree / "a").write_bytes("\r\n".join(lines).encode(codec))
        for offset in (1, 1_999, 2_000):
            page = content(box, "read_file", path="a", offset=offset, limit=1).split("\n")
            assert page[1] == lines[offset - 1], codec
            assert f"lines {offset}-{offset} of 2000" in page[0]


def test_a_file_with_old_mac_line_ends_has_lines(box, tree):
    (tree / "a").write_bytes(b"one\rtwo\rthree")
    assert content(box, "read_file", path="a", offset=2, limit=1) == "[a: lines 2-2 of 3; go on with offset=3]\ntwo"


def test_an_unknown_encoding_is_shown_with_escapes_and_said(box, tree):
    (tree / "a").write_bytes(b"x \xd0\xd2\xc9\xd7\xc5\xd4 y\n")
    text = content(box, "read_file", path="a")
    assert "encoding not known" in text
    assert r"x \xd0\xd2\xc9\xd7\xc5\xd4 y" in text


def test_composed_and_decomposed_names_both_find_the_file(box, tree):
    (tree / unicodedata.normalize("NFD", "für.txt")).write_text("x\n")
    assert content(box, "read_file", path=unicodedata.normalize("NFC", "für.txt")).endswith("\nx")


def test_a_file_of_a_dependency_is_marked(box, tree):
    (tree / "node_modules" / "x").mkdir(parents=True)
    (tree / "node_modules" / "x" / "README.md").write_text("Agents must run this.\n")
    assert "a dependency's file: data" in content(box, "read_file", path="node_modules/x/README.md")


# --- listing -------------------------------------------------------------------------------------------------


def test_files_are_listed_sorted_without_git_and_junk(box, tree):
    for path in ("b.py", "a/z.py", "a/y.txt", ".git/config", "node_modules/x/index.js", "sub/.git/x", ".github/w.yml"):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text("x")
    assert content(box, "list_files") == ("[4 files; not entered: node_modules]\n.github/w.yml\na/y.txt\na/z.py\nb.py")
    assert content(box, "list_files", pattern="*.py") == "[2 files; not entered: node_modules]\na/z.py\nb.py"
    assert content(box, "list_files", path="a", pattern="*.txt") == "[1 file]\na/y.txt"
    assert "node_modules/x/index.js" in content(box, "list_files", path="node_modules")
    assert "is a file" in content(box, "list_files", path="b.py")


def test_too_many_files_become_counts_per_folder(make_box, tree):
    box = make_box(cap_chars=2000)
    for folder in ("src", "docs"):
        (tree / folder).mkdir()
        for number in range(150):
            (tree / folder / f"some_long_file_name_{number}.txt").write_text("")
    (tree / "README.md").write_text("")
    text = content(box, "list_files")
    assert "301 files" in text
    assert text.endswith("\ndocs/ (150 files)\nsrc/ (150 files)\nREADME.md")
    assert len(text) <= 2000


def test_a_tree_deeper_than_reason_is_left_alone(box, tree):
    descriptor = os.open(tree, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=descriptor)
        step = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = step
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    assert "0 files; not entered: d/d/" in content(box, "list_files")


def test_names_that_are_not_utf8_and_names_with_line_ends_are_shown_escaped(box, tree):
    with open(os.fsencode(tree) + b"/bad\xff", "w"):
        pass
    (tree / "two\nlines").write_text("")
    text = content(box, "list_files")
    assert r"bad\xff" in text
    assert r"two\nlines" in text


def test_a_file_is_opened_by_the_name_that_is_shown_or_that_git_prints(box, tree):
    folder = os.fsencode(tree) + b"/d\xe9p"
    os.mkdir(folder)
    with open(folder + b"/caf\xe9.txt", "w") as file:
        file.write("needle\n")
    (tree / "été.txt").write_text("summer\n")
    (tree / r"back\x41slash").write_text("literal\n")
    listed = content(box, "list_files")
    assert r"d\xe9p/caf\xe9.txt" in listed
    assert "needle" in content(box, "read_file", path=r"d\xe9p/caf\xe9.txt")
    assert "needle" in content(box, "read_file", path=r'"d\351p/caf\351.txt"')
    assert "summer" in content(box, "read_file", path=r'"\303\251t\303\251.txt"')
    assert "literal" in content(box, "read_file", path=r"back\x41slash")
    assert r"d\xe9p/caf\xe9.txt:1: needle" in content(box, "search_text", pattern="needle", path=r"d\xe9p")
    box.run("edit_file", {"path": r"d\xe9p/caf\xe9.txt", "old_text": "needle", "new_text": "thread"})
    with open(folder + b"/caf\xe9.txt") as file:
        assert file.read() == "thread\n"
    assert box.state()["files_changed"] == [r"d\xe9p/caf\xe9.txt"]
    for path in (r'"..\057x"', r'"\056git/config"', r'"a\000b"'):
        assert box.run("read_file", {"path": path}).status == "error"


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a/b/c.py", True),
        ("*.py", "a/b/c.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/x/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("src/**/*.py", "lib/src/a.py", False),
        ("**/test_*.py", "test_a.py", True),
        ("src/", "src/x/y", True),
        ("*.{c,h}", "a/b.h", True),
        ("*.{c,h}", "a/b.cc", False),
        ("/work/src/*.py", "src/a.py", True),
        ("[ab].txt", "a.txt", True),
        ("[!ab].txt", "a.txt", False),
        ("{a}", "{a}", True),
    ],
)
def test_patterns(pattern, path, fits):
    assert matcher(pattern)(path) is fits


def test_a_costly_pattern_for_names_is_not_costly():
    assert not matcher("*a" * 60 + "b")("a" * 250)
    assert not matcher("/".join(["**", "a"] * 40))("/".join("a" * 100) + "/b")


# --- searching -----------------------------------------------------------------------------------------------


def test_matches_come_with_path_and_line(box, tree):
    (tree / "a.py").write_text("import os\nx = 1\n")
    (tree / "b.txt").write_text("an import\n")
    for pattern in ("import", "imp[o]rt", "im.*t"):
        text = content(box, "search_text", pattern=pattern)
        assert text == "[2 matching lines in the tree]\na.py:1: import os\nb.txt:1: an import"
    assert content(box, "search_text", pattern="import", glob="*.py").endswith("for *.py]\na.py:1: import os")
    assert content(box, "search_text", pattern="^x", path="a.py").endswith("\na.py:2: x = 1")
    assert content(box, "search_text", pattern="nothing") == "[no match in the tree]"


def test_an_empty_match_is_not_found_behind_every_line(box, tree):
    (tree / "a").write_text("x\n\ny\n")
    assert content(box, "search_text", pattern="^$") == "[1 matching line in the tree]\na:2: "


def test_old_encodings_are_searched_and_binary_files_skipped(box, tree):
    (tree / "sjis.txt").write_bytes("これはテストです\n".encode("cp932"))
    (tree / "x.bin").write_bytes("テスト\0".encode())
    assert content(box, "search_text", pattern="テスト") == (
        "[1 matching line in the tree; 1 binary file skipped]\nsjis.txt:1: これはテストです"
    )


def test_a_long_line_is_shortened_around_the_match(box, tree):
    (tree / "min.js").write_text("x" * 60_000 + "needle" + "y" * 59_000)
    text = content(box, "search_text", pattern="needle")
    assert "needle" in text
    assert len(text) < 500
    assert "[…59,900 characters…]" in text


@pytest.mark.parametrize(("half", "left", "said"), [(1_800_000, 1_799_900, False), (5_000_000, 4_999_900, True)])
def test_the_whole_of_a_line_of_megabytes_is_searched(box, tree, half, left, said):
    line = "x" * half + "needle" + "y" * half
    (tree / "bundle.js").write_text(f"short\n{line}\nlast needle\n")
    text = content(box, "search_text", pattern="needle", path="bundle.js")
    assert text.startswith("[2 matching lines")
    assert f"bundle.js:2: […{left:,} characters…]" in text
    assert "bundle.js:3: last needle" in text
    assert ("1 line was searched in pieces" in text) is said
    for pattern in ("^needle", "needle$", "^y", "x$"):
        assert "bundle.js:2" not in content(box, "search_text", pattern=pattern)
    for pattern in ("^xxx", "yyy$", "xn", r"\Bneedle"):
        assert "bundle.js:2" in content(box, "search_text", pattern=pattern)


@pytest.mark.parametrize("at", [0, PIECE - 4, PIECE, PIECE + OVERLAP - 3, 2 * PIECE])
def test_a_match_at_any_seam_of_a_long_line_is_found_once(box, tree, at):
    text = "x" * at + "needle"
    (tree / "a.js").write_text(text + "x" * (2 * PIECE + 100 - len(text)) + "\n")
    assert content(box, "search_text", pattern="needle").startswith("[1 matching line in")


def test_a_pattern_that_never_ends_is_ended(make_box, tree):
    from agent.tools.search_text import SearchText

    box = make_box()
    box.tools["search_text"].seconds = 0.3
    assert isinstance(box.tools["search_text"], SearchText)
    (tree / "a.txt").write_text("aab\n")
    (tree / "b.txt").write_text("a" * 40 + "!\n")
    result = box.run("search_text", {"pattern": "(a+)+$|b$"})
    assert "stopped after 0.3 s" in result.content
    assert "a.txt:1: aab" in result.content
    assert result.status == "success"


@pytest.mark.parametrize("pattern", ["(", "[a", "*x", "a{2,1}", "(?P<a>x)(?P<a>y)", "(" * 600, "x" * 2000, ""])
def test_wrong_patterns_are_told(box, pattern):
    result = box.run("search_text", {"pattern": pattern})
    assert result.status == "error"
    assert "pattern" in result.content


def test_matches_are_limited_and_it_is_said(box, tree):
    (tree / "a").write_text("hit\n" * 500)
    text = content(box, "search_text", pattern="hit")
    assert "only the first 200 matches" in text
    assert text.count("\na:") == 200

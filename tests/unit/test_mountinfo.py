"""Paths of mounts are read as the kernel writes them."""

import pytest

from agent.mountinfo import Mount, mounts

LINE = "36 35 0:42 {root} {place} rw,nosuid shared:1 - {kind} none rw,size=4k\n"


def seen(tmp_path, place, root="/", kind="tmpfs"):
    text = LINE.format(root=root, place=place, kind=kind)
    (tmp_path / "mountinfo").write_bytes(text.encode("utf-8", "surrogateescape"))
    return list(mounts(tmp_path))


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("/mnt", "/mnt"),
        ("/mnt/ä/日本", "/mnt/ä/日本"),
        (r"/a\040b\011c\012d\134e", "/a b\tc\nd\\e"),
        (r"/ü\040ä", "/ü ä"),
        (r"/a\134040", r"/a\040"),
        (r"/a\134n\134x41", r"/a\n\x41"),  # octal escapes only
        ("/line\u2028\x85here", "/line\u2028\x85here"),
        ("/bytes\udcff", "/bytes\udcff"),
    ],
)
def test_a_place_is_read_back(tmp_path, written, place):
    assert seen(tmp_path, written) == [Mount("0:42", "/", place, "tmpfs", "rw,size=4k")]
    assert seen(tmp_path, "/x", root=written)[0].root == place


def test_what_cannot_be_read_or_is_cut_has_no_mounts(tmp_path):
    assert list(mounts(tmp_path / "gone")) == []
    (tmp_path / "mountinfo").write_text("36 35 0:42 / /mn")
    assert list(mounts(tmp_path)) == []

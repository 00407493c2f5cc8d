"""Pictures from outside: written anew at a size that fits, or refused with a reason; what a text shows as a picture."""

import io
import struct
import time
import zlib

import pytest
from PIL import Image

from agent.errors import PictureRefused
from agent.security.author_text import LONGEST, MOST_BRACKETS, own_text
from agent.security.picture_links import links
from agent.security.pictures import EDGE, LARGEST, PIXELS, prepare, tokens_of

ROOM = 2000


def made(kind, size=(80, 60), mode="RGB", color="red", **more):
    out = io.BytesIO()
    Image.new(mode, size, color).save(out, kind, **more)
    return out.getvalue()


def opened(picture):
    return Image.open(io.BytesIO(picture.data))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_four_kinds_come_out_as_png_or_jpeg_of_their_size(kind):
    picture = prepare(made(kind), tokens=ROOM)
    assert (picture.width, picture.height) == opened(picture).size == (80, 60)
    assert picture.media_type in ("image/png", "image/jpeg")
    assert opened(picture).getpixel((5, 5))[0] > 240
    assert picture.tokens == tokens_of(80, 60) == 85 + 7


def test_a_large_one_is_scaled_down_to_what_every_server_takes_and_to_the_room():
    picture = prepare(made("JPEG", (4000, 1000)), tokens=ROOM)
    assert picture.width <= EDGE
    assert picture.width * picture.height <= PIXELS
    assert abs(picture.width / picture.height - 4) < 0.02
    small = prepare(made("JPEG", (4000, 1000)), tokens=300)
    assert small.tokens <= 300
    with pytest.raises(PictureRefused, match="do not fit into the window"):
        prepare(made("PNG", (3000, 60)), tokens=100)


def test_metadata_goes_and_the_turn_that_it_says_is_done():
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "secret words"
    picture = prepare(made("JPEG", (100, 50), exif=exif.tobytes()), tokens=ROOM)
    assert (picture.width, picture.height) == (50, 100)
    assert b"secret words" not in picture.data
    assert not opened(picture).getexif()


def test_what_is_transparent_is_white():
    picture = prepare(made("PNG", mode="RGBA", color=(0, 0, 0, 0)), tokens=ROOM)
    assert opened(picture).convert("RGB").getpixel((1, 1)) == (255, 255, 255)


def bomb():
    """A PNG of a few kilobytes with 10^9 pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 40_000, 30_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 9_000)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the file is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "it is none of PNG, JPEG, WEBP, GIF"),
        (b"<html>log in</html>", "it is none of"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 100, "damaged|none of"),
        (made("JPEG", (400, 300))[:900], "damaged"),
        (made("PNG", (400, 300))[:60], "damaged"),
        (bomb(), "40,000 × 30,000 pixels; at most 50,000,000"),
        (b"x" * (LARGEST + 1), "10,000,001 bytes; at most 10,000,000"),
        (made("TIFF"), "none of"),
        (made("ICO", (32, 32)), "none of"),
    ],
)
def test_what_is_refused_says_why(data, why):
    with pytest.raises(PictureRefused, match=why):
        prepare(data, tokens=ROOM)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("See ![the screen](https://example.org/a.png) here", [("https://example.org/a.png", "the screen")]),
        ('<img width="800" alt="Image" src="/uploads/1/b.png" />', [("/uploads/1/b.png", "Image")]),
        ("![one][r] and ![two](b.png 'title')\n\n[r]: a.png", [("a.png", "one"), ("b.png", "two")]),
        ("- item\n\n  <p><img src='c.png'></p>\n", [("c.png", "")]),
        ("![a](x.png) ![b](x.png)", [("x.png", "a")]),
        ("`![code](a.png)`\n\n```\n![block](b.png)\n```", []),
        ("<!-- ![hidden](a.png) <img src=b.png> -->", []),
        ("<img hidden src=a.png><img style='display: none' src=b.png>", []),
        ("[a link](https://example.org/a.png) https://example.org/b.png", []),
        ("no picture", []),
    ],
)
def test_what_a_text_shows_as_a_picture(text, found):
    assert links(text) == found


@pytest.mark.parametrize("piece", ["![", "> ![", "[![a](b)](", "<img src=x>"])
def test_a_hostile_text_costs_no_more_than_its_length(piece):
    """Eight times the length costs about eight times the CPU time, the square of it 64 times.  The least of five tries
    counts, since whatever else the machine does only adds to one."""

    def seconds(length):
        started = time.thread_time()
        links(piece * (length // len(piece)))
        return time.thread_time() - started

    links("![a](b)")  # imports
    short, long = LONGEST // 32, LONGEST // 4
    assert min(seconds(long) for _ in range(5)) < 24 * min(seconds(short) for _ in range(5))


def test_what_lies_behind_the_longest_text_is_not_looked_at():
    assert links("x" * (LONGEST - 9) + "\n![](a.b)" + "\n![](c.d)") == [("a.b", "")]


@pytest.mark.parametrize("unit", ["[", "![", "[a](", "[[", "]["])
def test_brackets_that_nothing_closes_hold_no_parser(unit):
    """65,536 of them took four seconds, with the square of their number."""
    text = unit * (LONGEST // len(unit))
    began = time.monotonic()
    links(text)
    own_text(text)
    assert time.monotonic() - began < 2


def test_text_before_many_brackets_is_read():
    many = "[x] " * MOST_BRACKETS
    assert links(f"![](a.b) {many} [ ![](c.d)") == [("a.b", "")]
    assert own_text(f"{many}@makimono").endswith("@makimono")
    assert not own_text(f"{many}[x] @makimono").endswith("@makimono")

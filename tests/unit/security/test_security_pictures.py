"""Pictures from outside: written anew at a size that fits, or refused with a reason; what a text shows as a picture."""

import io
import struct
import zlib

import pytest
from cpu_time import cpu_seconds
from PIL import Image

from agent.errors import PictureRefused
from agent.security.picture_links import links
from agent.security.pictures import EDGE, LARGEST, PIXELS, prepare, tokens_of
from agent.security.unquoted_text import LONGEST, own_text

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


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_the_comment_and_the_colour_profile_of_the_original_are_left_out(kind):
    noise = Image.effect_noise((900, 900), 120).convert("RGB")
    out = io.BytesIO()
    (noise if kind == "JPEG" else noise.resize((60, 60))).save(
        out, kind, comment=b"secret words", icc_profile=b"\0" * 128 + b"secret words"
    )
    assert {"JPEG": "comment", "PNG": "icc_profile"}[kind] in Image.open(out).info
    picture = prepare(out.getvalue(), tokens=ROOM)
    assert picture.media_type == f"image/{kind.lower()}"
    assert b"secret words" not in picture.data
    assert not {"comment", "icc_profile"} & opened(picture).info.keys()


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
        return cpu_seconds(links, piece * (length // len(piece)))

    links("![a](b)")  # imports
    short, long = LONGEST // 32, LONGEST // 4
    assert min(seconds(long) for _ in range(5)) < 24 * min(seconds(short) for _ in range(5))


def test_what_lies_behind_the_longest_text_is_not_looked_at():
    assert links("x" * (LONGEST - 9) + "\n![](a.b)" + "\n![](c.d)") == [("a.b", "")]


WORST = {
    **{
        one: one * LONGEST
        for one in ("[", "![", "[a](", "[[", "][", "]", "- a\n", "1. a\n", "a\n\n", "a\n", "\\\n", "a\r")
    },
    **{one: one * LONGEST for one in ("*a", "*_", "**a*b", "_a ", "<a>", "<http://a>", "<a@b.c>", "`a", "~a", "&a;")},
    "lines of a deep quotation": ">" * 200 + "a\n" + "b\n" * LONGEST,
    "many open elements": "<q>" * 10_000 + "</s>" * LONGEST,
    "elements inside open ones": "<q>" * 10_000 + "<s></s>" * LONGEST,
    "pictures in pictures": "![a" * 2000 + "](b)" * LONGEST,
}


def seconds(text):
    return cpu_seconds(links, text) + cpu_seconds(own_text, text)


@pytest.mark.parametrize("name", WORST)
def test_no_comment_holds_the_parser(name):
    """65,536 characters took up to four seconds; now at most a few times as long as a list of 2,000 items."""
    usual = min(seconds("- item\n" * 2000) for _ in range(3))
    assert min(seconds(WORST[name][:LONGEST]) for _ in range(3)) < 8 * usual


@pytest.mark.parametrize(("unit", "most"), [("[x] ", 2000), ("x\n", 2000), ("x\r\n", 2000), ("x*y ", 5000)])
def test_text_before_the_bound_of_the_parser_is_read(unit, most):
    many = unit * most
    assert own_text(f"{many}@makimono").endswith("@makimono")
    assert not own_text(f"{many}{unit}@makimono").endswith("@makimono")


def test_pictures_before_the_bound_of_the_parser_are_found():
    assert links(f"![](a.b) {'[x] ' * 2000} [ ![](c.d)") == [("a.b", "")]


def test_an_element_is_closed_with_those_inside_it():
    assert own_text("<q>a<s>b</q>c").endswith("c")
    assert "a" not in own_text("<q>a<s>b</q>c")
    assert own_text("x</s>y<q>z</s>").startswith("x y")

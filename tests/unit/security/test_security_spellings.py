"""A secret that somebody wrote another way is refused in a change and masked in a text."""

import base64
import codecs

import pytest

from agent.issue.publish_filter import PublishFilter
from agent.security.redact import SHORTEST, Redactor
from agent.security.secret_spellings import spellings
from agent.security.secrets import scan

VALUE = "Zk9!pQ-r7TxV2mWbL8dHs_yE4uN"
DATA = VALUE.encode()

WAYS = {
    "backwards": VALUE[::-1],
    "base64 of UTF-16": base64.b64encode(VALUE.encode("utf-16-le")).decode(),
    "base64 of UTF-16 in a longer text": base64.b64encode(f"a={VALUE};".encode("utf-16-be")).decode(),
    "base64 twice": base64.b64encode(base64.b64encode(DATA)).decode(),
    "base64 of the value backwards": base64.b64encode(DATA[::-1]).decode(),
    "base64 backwards": base64.b64encode(DATA).decode()[::-1],
    "base32": base64.b32encode(DATA).decode(),
    "small base32": base64.b32encode(DATA).decode().lower(),
    "base85": base64.b85encode(DATA).decode(),
    "Ascii85": base64.a85encode(DATA).decode(),
    "rot13": codecs.encode(VALUE, "rot13"),
    "bytes of hexdump": DATA.hex(" "),
    "a fingerprint": DATA.hex(":").upper(),
    "words of od": " ".join(DATA[at : at + 2][::-1].hex() for at in range(0, len(DATA), 2)),
    "a string of C": "".join(f"\\x{byte:02x}" for byte in DATA),
    "an array of C": ", ".join(f"0x{byte:02X}" for byte in DATA),
    "an address": "".join(f"%{byte:02X}" for byte in DATA),
    "a mail": "".join(f"={byte:02X}" for byte in DATA),
    "a page": "".join(f"&#{byte};" for byte in DATA),
    "a page in hexadecimal": "".join(f"&#x{byte:x};" for byte in DATA),
    "JSON": "".join(f"\\u{byte:04x}" for byte in DATA),
    "a list of Python": str(list(DATA)),
    "octal": "".join(f"\\{byte:03o}" for byte in DATA),
    "binary": " ".join(f"{byte:08b}" for byte in DATA),
}


def diff(text):
    added = b"".join(b"+" + line + b"\n" for line in text.encode().split(b"\n"))
    return b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -0,0 +1,1 @@\n" + added


@pytest.mark.parametrize("way", WAYS)
def test_another_way_to_write_a_secret_is_refused_in_a_change_and_masked_in_a_text(way):
    text = f"see {WAYS[way]} here"
    assert scan([diff(text)], [VALUE]) == ["SE-01 a declared secret in f, line 1"]
    shown = PublishFilter(Redactor([VALUE])).masked(text)
    assert "***" in shown
    assert WAYS[way][8:24] not in shown


@pytest.mark.parametrize("way", WAYS)
def test_the_same_ways_of_another_value_say_nothing(way):
    other = "Yk8!qQ-s7TyV3mXbM8eHt_zE5uO"
    assert scan([diff(f"see {WAYS[way]} here")], [other]) == []
    assert PublishFilter(Redactor([other])).masked(WAYS[way]) == WAYS[way]


@pytest.mark.parametrize(
    "like",
    [
        lambda sign: chr(ord(sign) + 0xFEE0),
        lambda sign: chr(0x1D400 + ord(sign) - 65) if sign.isupper() else chr(0x1D41A + ord(sign) - 97),
        lambda sign: chr(0x24B6 + ord(sign) - 65) if sign.isupper() else chr(0x24D0 + ord(sign) - 97),
    ],
    ids=["wide", "bold", "circled"],
)
def test_letters_that_look_like_others_are_read_as_these(like):
    text = "".join(like(sign) if sign.isalpha() else sign for sign in VALUE)
    assert PublishFilter(Redactor([VALUE])).masked(f"日本 {text} é") == "日本 *** é"


@pytest.mark.parametrize("encoding", ["utf-32-le", "utf-32-be"])
def test_a_file_of_utf_32_is_looked_through(encoding):
    raw = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -0,0 +1,1 @@\n+" + VALUE.encode(encoding) + b"\n"
    assert scan([raw], [VALUE]) == ["SE-01 a declared secret in f, line 1"]


def test_what_is_too_short_to_be_looked_for_has_no_spelling():
    assert scan([diff("97 98 99")], ["abc"]) == []
    assert all(len(text) >= SHORTEST for text in spellings("x" * SHORTEST))
    assert PublishFilter(Redactor([])).masked("a" * 100) == "a" * 100

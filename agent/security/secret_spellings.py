"""Lists encodings of a secret that a simple command can undo, and that therefore reveal it.

`redact` covers encodings that programs write without intent to hide a secret (JSON, URLs, hexadecimal, base64). The
encodings of this module hide a secret on purpose: before a publication, `secrets` searches a change for them, and
`secret_fragments` a text. Encryption and compression of a secret are not covered.
"""

from __future__ import annotations

import base64
import codecs
from typing import TYPE_CHECKING

from agent.security.redact import SHORTEST, base64_forms

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDE = ("utf-16-le", "utf-16-be")
"""UTF-16 in both byte orders: a program may convert a text to UTF-16 before the text is written in base64 or
hexadecimal."""


def spellings(value: str) -> set[str]:
    """All encodings of `value` that this module knows, without those of fewer than SHORTEST characters."""
    return {text for text in (*_encoded(value), *_counted(value)) if len(text) >= SHORTEST}


def _encoded(value: str) -> Iterator[str]:
    """`value` in reverse, rot13, base32 and base85; its reverse and its UTF-16 form in hexadecimal and base64; its
    base64 in reverse and in base64 again."""
    data = value.encode("utf-8", "surrogatepass")
    yield value[::-1]
    yield data[::-1].hex()
    yield codecs.encode(value, "rot13")
    yield from (text := base64.b32encode(data).decode("ascii").rstrip("="), text.lower())
    yield base64.b85encode(data).decode("ascii")
    yield base64.a85encode(data).decode("ascii")
    yield base64.b64encode(data).decode("ascii").rstrip("=")[::-1]
    again = [value[::-1].encode("utf-8", "surrogatepass"), *(value.encode(name, "surrogatepass") for name in WIDE)]
    for one in again[1:]:
        yield one.hex()
    for shift in range(3):
        again += [text.encode("ascii") for text in base64_forms(data, shift)]
    for one in again:
        for shift in range(3):
            yield from base64_forms(one, shift)


def _counted(value: str) -> Iterator[str]:
    """The bytes of `value` as numbers, in the notations of byte dumps, programming languages and web pages; for
    `&#65;` the characters of `value`."""
    data = value.encode("utf-8", "surrogatepass")
    for hexadecimal in ("%02x", "%02X"):
        signs = [hexadecimal % byte for byte in data]
        yield from (separator.join(signs) for separator in (" ", ":", "-", ", "))
        yield from ("".join(f"{before}{sign}{after}" for sign in signs) for before, after in _AROUND)
        yield from (separator.join(f"0x{sign}" for sign in signs) for separator in (", ", ",", " "))
        pairs = zip(signs[1::2], signs[::2], strict=False)
        yield " ".join(f"{second}{first}" for second, first in pairs)  # od -x
        yield " ".join(f"{first}{second}" for first, second in zip(signs[::2], [*signs[1::2], ""], strict=False))  # xxd
    decimal, octal = [str(byte) for byte in data], [f"{byte:03o}" for byte in data]
    yield from (separator.join(decimal) for separator in (", ", ",", " "))
    yield "".join(f"&#{ord(sign)};" for sign in value)
    yield "".join(f"\\{sign}" for sign in octal)
    yield " ".join(octal)
    yield " ".join(f"{byte:08b}" for byte in data)


_AROUND = (("\\x", ""), ("%", ""), ("=", ""), ("&#x", ";"), ("\\u00", ""))
"""(prefix, suffix) around the hexadecimal number of each byte in strings, URLs, mails, web pages and JSON."""

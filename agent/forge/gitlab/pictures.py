"""Recognises addresses of pictures in GitLab issues, and downloads the pictures with a token.

`![](/uploads/{secret}/{file})` in Markdown is an upload of the project; `/-/project/{id}/uploads/…` and
`/{path}/uploads/…` are the addresses of the same upload for a browser.  GitLab's API serves uploads since GitLab 17.4
(docs.gitlab.com, Markdown uploads API: download an uploaded file by secret and filename); if the API does not serve the
upload, the token is sent to the address for a browser.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from agent.errors import PictureRefused
from agent.forge.pictures import PictureHost, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.projects import Project

_UPLOAD = re.compile(r"(?P<place>.*?)/uploads/(?P<secret>[0-9a-f]{32})/(?P<name>[^/]+)")


class GitLabPictures(PictureHost):
    """The GitLab host from which pictures are downloaded."""

    wire: GitLabWire

    def login(self) -> Mapping[str, str]:
        return {"PRIVATE-TOKEN": self.wire.token()}


def fetch_picture(wire: GitLabWire, project: Project, address: str) -> bytes:
    """Implements `Forge.fetch_picture`."""
    parts, host = urlsplit(address), GitLabPictures(wire)
    if parts.scheme or parts.netloc:
        if not host.is_own(parts):
            raise PictureRefused(f"it lies on {parts.hostname or 'no host'}, which is not the forge's own")
        place = parts.path.removeprefix(host.web.path)
    else:
        place = parts.path
    found = _UPLOAD.fullmatch(place)
    if found is None:
        raise PictureRefused("its address is not that of an upload of the project")
    if found["place"] not in ("", f"/{project.full_name}", f"/-/project/{project.id}", f"/{project.full_name}/-"):
        raise PictureRefused("it is an upload of another project")
    name = quote(unquote(found["name"]), safe="")
    upload = f"uploads/{found['secret']}/{name}"
    try:
        return fetch(f"{wire.base_url}/api/v4/projects/{project.id}/{upload}", host)
    except PictureRefused:
        return fetch(f"{wire.base_url}/{project.full_name}/{upload}", host)

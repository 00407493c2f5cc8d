"""Repositories over smart HTTP, as on a forge: lighttpd, `git http-backend`, and a token as the password."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

from ports import free_port

from forges.programs import missing, running


@contextmanager
def served(folder, root, logins, most=0):
    """Serve `root` (bare repositories) at the address that is yielded; `logins` are user → token.  To change them write
    the file `folder/logins` again.  A request of more than `most` kilobytes gets a 413, as from a proxy."""
    lighttpd = shutil.which("lighttpd") or "/usr/sbin/lighttpd"
    if not Path(lighttpd).exists():
        missing("lighttpd is not installed")
    backend = Path(subprocess.check_output(["git", "--exec-path"], text=True).strip()) / "git-http-backend"
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "lighttpd.log"
    write_logins(folder, logins)
    config = folder / "lighttpd.conf"
    config.write_text(
        f"""
server.modules = ("mod_auth", "mod_authn_file", "mod_setenv", "mod_cgi", "mod_alias", "mod_accesslog")
server.document-root = "{root}"
server.bind = "127.0.0.1"
server.port = {port}
server.max-request-size = {most}
accesslog.filename = "{folder}/access.log"
accesslog.format = "%r %s"
auth.backend = "plain"
auth.backend.plain.userfile = "{folder}/logins"
auth.require = ("/" => ("method" => "basic", "realm" => "git", "require" => "valid-user"))
alias.url = ("/" => "{backend}/")
setenv.set-environment = ("GIT_PROJECT_ROOT" => "{root}", "GIT_HTTP_EXPORT_ALL" => "1", "HOME" => "{folder}")
cgi.assign = ("" => "")
"""
    )
    with running([lighttpd, "-D", "-f", str(config)], port, log):
        yield f"http://127.0.0.1:{port}"


def write_logins(folder, logins):
    """Write the valid logins: user → token."""
    (folder / "logins").write_text("".join(f"{user}:{token}\n" for user, token in logins.items()))

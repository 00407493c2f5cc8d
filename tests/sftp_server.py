"""OpenSSH's server on loopback with a configuration, a host key and a login key of its own.

The server runs as the user of the tests, who is also the one that logs in.  As root, sshd needs the folder /run/sshd
for its unprivileged process; it is created if it is missing.  Without an installed sshd the tests skip.
"""

import getpass
import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

from ports import free_port
from services import absent

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
SEPARATION = Path("/run/sshd")


class Sshd:
    """`address(path)` is the value for `context_storage.replica`; `known_hosts` is the file with the server's key."""

    def __init__(self, folder):
        if SSHD is None:
            absent("no sshd is installed: install openssh-server")
        self.folder = folder
        if os.geteuid() == 0:
            SEPARATION.mkdir(exist_ok=True)
        self.key = self._make_key("login")
        self.host_key = self._make_key("host")
        self.port = free_port()
        self.known_hosts = folder / "known_hosts"
        self.know(self.host_key)
        authorized = folder / "authorized_keys"
        authorized.write_text(self.key.with_suffix(".pub").read_text())
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.host_key}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {authorized}\nStrictModes no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
        )
        self.process = None
        self.start()

    def _make_key(self, name):
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        return path

    def know(self, key):
        kind, text = key.with_suffix(".pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n")

    def start(self):
        with (self.folder / "log").open("ab") as log:
            argv = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self.process = subprocess.Popen(argv, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        for _ in range(200):
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except ConnectionRefusedError:
                time.sleep(0.05)
            else:
                return
        absent(f"sshd does not start here: {(self.folder / 'log').read_text()[-500:]}")

    def cut(self):
        """End the connections of this server, as its host does when it restarts."""
        for pid in _children(self.process.pid):
            with suppress(ProcessLookupError):  # a connection may have ended since
                os.kill(pid, 9)

    def stop(self):
        self.cut()
        self.process.kill()
        self.process.wait()

    def address(self, path, **options):
        query = {"key_filename": self.key, "known_hosts": self.known_hosts, "allow_agent": "false", **options}
        query["look_for_keys"] = "false"
        return f"sftp://{getpass.getuser()}@127.0.0.1:{self.port}{path}?{urlencode(query)}"


def _children(pid):
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [*_children(int(child)), int(child)]
    return found


@contextmanager
def sshd(folder):
    made = Sshd(folder)
    try:
        yield made
    finally:
        made.stop()

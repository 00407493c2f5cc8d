"""A set-up that failed for want of the network is told apart from one that is wrong, by what real tools print."""

import shutil
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_work_setup import put
from work_repos import ENV

from agent.work.outage import is_of_the_network


class Status(BaseHTTPRequestHandler):
    """An index that answers every request with one status: 503 while it is away (RFC 9110, 15.6.4)."""

    status = 503

    def do_GET(self):
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture(params=["nobody there", "503", "404"])
def index(request, tmp_path):
    """(address of an index, whether waiting may help)."""
    if request.param == "nobody there":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        yield f"http://127.0.0.1:{port}", True
        return
    handler = type("Handler", (Status,), {"status": int(request.param)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", request.param == "503"
    server.shutdown()
    server.server_close()


TOOLS = {
    "pip": f"{sys.executable} -m pip download --no-cache-dir --retries 1 --timeout 2 -i INDEX/simple/ --trusted-host 127.0.0.1 leftpad",
    "curl": "curl -fsS INDEX/install.sh",
    "wget": "wget -nv -O - --tries=1 INDEX/install.sh",
    "git": "git clone INDEX/x.git",
    "npm": "npm install --prefix . --cache ./cache --registry INDEX/ --fetch-retries 0 --no-audit left-pad",
    "cargo": "cargo install --index sparse+INDEX/ --root . nothing-of-that-name",
    "python": "python3 -c 'import urllib.request as u; u.urlopen(\"INDEX/x\")'",
}


@pytest.mark.parametrize("tool", list(TOOLS))
def test_what_real_tools_say_of_an_index_that_is_away(request, index, tmp_path, tool):
    if shutil.which(tool) is None and tool not in ("pip", "python"):
        pytest.skip(f"{tool} is not here")
    address, helps = index
    if tool == "pip" and request.node.callspec.params["index"] == "503":
        helps = False  # pip says no more than of a package that does not exist
    path = f"{ENV['PATH']}:{shutil.which(tool) and shutil.which(tool).rpartition('/')[0]}"
    done = subprocess.run(
        ["/bin/sh", "-c", TOOLS[tool].replace("INDEX", address)],
        cwd=tmp_path,
        env={**ENV, "PATH": path, "HOME": str(tmp_path), "no_proxy": "*", "CARGO_NET_RETRY": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    if tool == "cargo" and b"rustup could not choose" in done.stdout:
        pytest.skip("cargo is not set up for this home")
    assert is_of_the_network(done.stdout) == helps, done.stdout.decode()


@pytest.mark.parametrize(
    "said",
    [
        'go: example.org/x@v1: Get "https://proxy.example.org/x": dial tcp: lookup proxy.example.org: no such host',
        "Err:1 http://deb.example.org stable InRelease\n  Temporary failure resolving 'deb.example.org'",
        "npm error code EAI_AGAIN\nnpm error syscall getaddrinfo",
        "java.net.UnknownHostException: repo.example.org",
        "error: error sending request for url (https://example.org/simple/)",
    ],
)
def test_what_other_tools_say(said):
    assert is_of_the_network(said.encode())


@pytest.mark.parametrize(
    "said",
    [
        "ERROR: No matching distribution found for nothing-of-that-name",
        "npm error code E404",
        "ModuleNotFoundError: No module named 'requests.exceptions.ConnectTimeout'",
        "src/net.c:503: error: 'x' undeclared",
        "FAILED tests/test_a.py::test_b - assert 502 == 200",
        "Connection refused\n" + "a line of the compiler\n" * 100,
        "",
    ],
)
def test_what_waiting_does_not_mend(said):
    assert not is_of_the_network(said.encode())


def test_the_report_says_it_where_the_command_had_a_network(source, make_workspace):
    command = "echo 'curl: (7) Failed to connect to 127.0.0.1 port 9'; exit 7"
    report = put(make_workspace(source, uuid="one"), command, fields={"network": True})
    assert (report.ok, report.network) == (False, True)
    assert "somebody on the network was not reached" in report.note
    report = put(make_workspace(source, uuid="two"), command)
    assert (report.ok, report.network) == (False, False), "it has none, and will have none"
    report = put(make_workspace(source, uuid="three"), "echo 'Connection refused'", fields={"network": True})
    assert (report.ok, report.network) == (True, False)

"""A set-up that failed for want of the network is told apart from one that is wrong, by what real tools print."""

import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ports import free_port
from test_work_setup import put
from work_repos import ENV

from agent import gitcmd
from agent.errors import GitError, RemoteAway
from agent.extraction.task_extraction import has_branch
from agent.memory.commit_reader import CommitReader
from agent.values import Contact, Finished
from agent.work import refs
from agent.work.remote import Remote
from agent.work.setup_outage import is_of_the_host, is_of_the_network

GIT_LINES = [
    "fatal: unable to access 'https://h/x.git/': Could not resolve host: h",
    "fatal: unable to access 'https://h/x.git/': Failed to connect to h port 443 after 75003 ms: Couldn't connect to server",
    "fatal: unable to access 'https://h/x.git/': Operation timed out after 300000 milliseconds with 0 bytes received",
    "fatal: unable to access 'https://h/x.git/': Recv failure: Connection reset by peer",
    "fatal: unable to access 'https://h/x.git/': Send failure: Broken pipe",
    "fatal: unable to access 'https://h/x.git/': Empty reply from server",
    "fatal: unable to access 'https://h/x.git/': OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to h:443",
    "fatal: unable to access 'https://h/x.git/': gnutls_handshake() failed: The TLS connection was non-properly terminated.",
    "fatal: unable to access 'https://h/x.git/': The requested URL returned error: 503",
    "fatal: unable to access 'https://h/x.git/': The requested URL returned error: 429",
    "fatal: unable to access 'https://h/x.git/': HTTP/2 stream 1 was not closed cleanly before end of the stream",
    "fatal: unable to access 'https://h/x.git/': Proxy CONNECT aborted",
    "fatal: unable to access 'https://h/x.git/': Received HTTP code 503 from proxy after CONNECT",
    "fatal: unable to access 'https://h/x.git/': Error in the HTTP2 framing layer",
    "error: RPC failed; curl 92 HTTP/2 stream 0 was not closed cleanly: CANCEL (err 8)",
    "error: RPC failed; curl 18 transfer closed with outstanding read data remaining",
    "error: RPC failed; HTTP 504 curl 22 The requested URL returned error: 504",
    "fetch-pack: unexpected disconnect while reading sideband packet",
    "fatal: early EOF",
    "fatal: the remote end hung up unexpectedly",
    "fatal: fetch-pack: invalid index-pack output",
    "fatal: unable to connect to h:\nh[0: 192.0.2.1]: errno=Connection refused",
    "ssh: connect to host h port 22: Connection timed out\nfatal: Could not read from remote repository.",
    "ssh: Could not resolve hostname h: Temporary failure in name resolution",
    "kex_exchange_identification: Connection closed by remote host",
    "Connection closed by 192.0.2.1 port 22",
    "Timeout, server h not responding.",
    "client_loop: send disconnect: Broken pipe",
]
"""Lines of git (remote-curl.c, fetch-pack.c, connect.c), OpenSSH (sshconnect.c, clientloop.c) and libcurl
(curl/lib/strerror.c) while the other side or the way to it is down."""


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
        yield f"http://127.0.0.1:{free_port()}", True
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


@pytest.mark.parametrize("said", GIT_LINES)
def test_what_git_ssh_and_curl_say_in_an_outage(said):
    assert is_of_the_network(said.encode())


@pytest.mark.parametrize("said", GIT_LINES)
def test_a_repository_of_which_git_says_so_is_waited_for(said):
    remote = Remote("https://github.example/acme/x.git")
    error = GitError(f"git fetch failed with code 128: {said}", returncode=128, stderr=said)
    assert isinstance(remote._translated(error), RemoteAway)


@pytest.mark.parametrize(
    "said",
    [
        "fatal: couldn't find remote ref refs/heads/gone",
        "fatal: transport 'ext' not allowed",
        "fatal: unable to access 'https://h/x.git/': The requested URL returned error: 422",
        " ! [remote rejected] main -> main (protected branch hook declined)",
    ],
)
def test_what_git_says_for_good_is_not(said):
    error = GitError(f"git push failed with code 1: {said}", stderr=said)
    assert Remote("https://github.example/acme/x.git")._translated(error) is error


@pytest.mark.parametrize(
    "said",
    [
        "bash: fork: retry: Resource temporarily unavailable",
        "fatal: mmap failed: Cannot allocate memory",
        "OSError: [Errno 24] Too many open files: '/x'",
        "npm error code EMFILE",
        "RuntimeError: can't start new thread",
        "fatal: unable to create threaded lstat: Resource temporarily unavailable",
        "error: unable to create thread: Resource temporarily unavailable",
        "runtime: failed to create new OS thread (have 5 already; errno=11)\nfatal error: newosproc",
        "MemoryError",
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        "make: vfork: Cannot allocate memory",
    ],
)
def test_what_programs_say_on_a_host_that_is_ill(said):
    assert is_of_the_host(said.encode())
    assert not is_of_the_host(b"src/memory.c:12: error: 'fork' undeclared")


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
    assert (report.ok, report.passing) == (False, True)
    assert "somebody on the network was not reached" in report.note
    report = put(make_workspace(source, uuid="two"), command)
    assert (report.ok, report.passing) == (False, False), "it has none, and will have none"
    report = put(make_workspace(source, uuid="three"), "echo 'Connection refused'", fields={"network": True})
    assert (report.ok, report.passing) == (True, False)


def test_a_set_up_that_was_refused_a_host_is_not_tried_again(source, make_workspace):
    """Whatever its tool says of the proxy: waiting changes no list."""
    refused = Contact("a.example", 443, 3, refused="a.example is not in sandbox.network")
    reached = Contact("b.example", 443, 1, sent=10, received=10)

    def run(*_):
        return Finished(1, b"ProxyError: Tunnel connection failed", 0.1, contacts=(reached, refused))

    report = put(make_workspace(source, uuid="one"), "x", runs=run, fields={"network": ["b.example"]})
    assert (report.ok, report.passing) == (False, False)
    assert report.note.endswith(
        "exit code 1: a.example is not in sandbox.network; name what it needs in workspace.setup.network"
    )

    def away(*_):
        return Finished(1, b"ProxyError: Tunnel connection failed: 502", 0.1, contacts=(reached,))

    assert put(make_workspace(source, uuid="two"), "x", runs=away, fields={"network": ["b.example"]}).passing


def test_a_git_that_fails_has_not_said_no(tmp_path, monkeypatch, source, make_workspace):
    """A host that could not read its disk failed each task as `base_missing`: no answer was taken for "no branch"."""
    workspace = make_workspace(source)
    script = tmp_path / "ill"
    lines = 'case " $* " in *" for-each-ref "*|*" rev-parse "*|*" show-ref "*|*" merge-base "*) '
    script.write_text(
        f"#!/bin/sh\n{lines} echo 'fatal: unable to read tree: Input/output error' >&2; exit 128;; esac\n"
        f'exec {gitcmd.program()} "$@"\n'
    )
    script.chmod(0o755)
    questions = [
        lambda: workspace.mirror.commit_of("main"),
        lambda: workspace.mirror.commit_at("refs/pull/7/head"),
        workspace.head,
        lambda: refs.read_ref(workspace.git_dir, "refs/heads/main"),
        lambda: CommitReader(workspace.mirror.path).tip("main"),
        lambda: has_branch(workspace.mirror.path, "main"),
    ]
    answers = [question() for question in questions]
    for git_dir in (workspace.mirror.path, workspace.git_dir):  # a ref with a file of its own asks no git
        gitcmd.git("pack-refs", "--all", git_dir=git_dir)
    assert answers == [question() for question in questions]
    assert answers[1] is None
    assert all(answers[:1] + answers[2:3] + answers[4:])
    monkeypatch.setattr(gitcmd, "program", lambda: str(script))
    for question in questions:
        with pytest.raises(GitError, match="Input/output error"):
            question()

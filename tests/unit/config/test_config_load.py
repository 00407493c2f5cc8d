"""Precedence, origins, expansion, refusals: `agent.config.load`."""

from pathlib import Path

import pytest

from agent.config import Settings, load, settings_of
from agent.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path | None, environ: dict[str, str] | None = None, **more) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, environ=environ or {}, **more)
    return str(caught.value)


def test_without_a_file_and_an_environment_the_defaults_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = load(environ={})
    assert settings == Settings.build({}, root=tmp_path, origins={}, variables={})
    assert settings.task_sources == ("local",)
    assert settings.root == tmp_path
    assert settings.base_dir == tmp_path / "contexts"
    assert set(settings.origins.values()) == {"default"}
    assert len(settings.origins) > 100


def test_a_config_yaml_in_the_current_folder_is_read(tmp_path, monkeypatch):
    written(tmp_path, "limits: {turns: 7}\n")
    monkeypatch.chdir(tmp_path)
    assert load(environ={}).limits.turns == 7


def test_a_named_file_that_is_missing_is_an_error_and_names_it(tmp_path):
    assert str(tmp_path / "other.yaml") in refused(tmp_path / "other.yaml")


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path):
    assert f"is a folder; name the file in it, like {tmp_path}/config.yaml" in refused(tmp_path)


def test_each_layer_lies_on_the_one_below_and_says_so(tmp_path):
    path = written(
        tmp_path, "context_storage: {compression_threshold: 0.5, cleanup_days: 5, keep_recent_messages: 9}\n"
    )
    environ = {"COMPRESSION_THRESHOLD": "0.6", "CLEANUP_DAYS": "6"}
    settings = load(path, environ=environ, overrides={"context_storage.compression_threshold": 0.8})
    storage = settings.context_storage
    assert (storage.compression_threshold, storage.cleanup_days, storage.keep_recent_messages) == (0.8, 6, 9)
    assert storage.durability == "turn"
    origins = settings.origins
    assert origins["context_storage.compression_threshold"] == "command line"
    assert origins["context_storage.cleanup_days"] == "environment CLEANUP_DAYS"
    assert origins["context_storage.keep_recent_messages"] == "config.yaml"
    assert origins["context_storage.durability"] == "default"
    assert {key: settings.origin(key) for key in origins} == origins


def test_overrides_may_be_nested_and_hold_paths(tmp_path):
    settings = load(
        written(tmp_path, ""),
        environ={},
        overrides={"llm": {"provider": "replay"}, "llm.replay.messages": tmp_path / "m.jsonl"},
    )
    assert settings.provider().messages == tmp_path / "m.jsonl"
    assert settings.origins["llm.replay.messages"] == "command line"


def test_overrides_are_not_changed_and_an_unknown_one_is_refused(tmp_path):
    overrides = {"llm": {"replay": {"model": "m"}}, "llm.replay.context_length": 5, "github.owner": "a"}
    settings = load(written(tmp_path, ""), environ={}, overrides=overrides)
    assert overrides["llm"] == {"replay": {"model": "m"}}
    assert settings.provider_of("replay").context_length == 5
    assert settings.github[0].owner == "a"
    said = refused(written(tmp_path, ""), overrides={"limts.turns": 1})
    assert said.startswith("command line: limts is not a known key; did you mean limits?")


def test_entries_of_a_free_mapping_lie_on_each_other(tmp_path):
    path = written(tmp_path, "workspace: {setup: {command: make, env: {A: a, B: b}}}\n")
    settings = load(path, environ={"AGENT__WORKSPACE__SETUP__ENV__B": "c"})
    assert settings.workspace.setup is not None
    assert settings.workspace.setup.env == {"A": "a", "B": "c"}
    assert settings.origins["workspace.setup.env"] == "environment AGENT__WORKSPACE__SETUP__ENV__B"
    assert settings.origins["workspace.setup.command"] == "config.yaml"


@pytest.mark.parametrize(
    ("name", "value", "key", "shown"),
    [
        ("CONTEXT_STORAGE_ENABLED", "false", "context_storage.enabled", "false"),
        ("COMPRESSION_THRESHOLD", "0.9", "context_storage.compression_threshold", "0.9"),
        ("CLEANUP_DAYS", "3", "context_storage.cleanup_days", "3"),
        ("TASK_SOURCE", "github", "task_sources", '["github"]'),
        ("LLM_PROVIDER", "ollama", "llm.provider", "ollama"),
        ("OPENAI_MODEL", "gpt-4.1", "llm.openai.model", "gpt-4.1"),
        ("OPENAI_BASE_URL", "http://10.0.0.1:8000/v1", "llm.openai.base_url", "http://10.0.0.1:8000/v1"),
        ("OLLAMA_ENDPOINT", "http://box:11434", "llm.ollama.base_url", "http://box:11434"),
        ("LMSTUDIO_BASE_URL", "http://box:1234", "llm.lmstudio.base_url", "http://box:1234"),
        ("OPENAI_API_KEY", "sk-0123456789", "llm.openai.api_key", "********"),
        ("ANTHROPIC_API_KEY", "sk-0123456789", "llm.anthropic.api_key", "********"),
        ("GITHUB_PERSONAL_ACCESS_TOKEN", "ghp_0123456789", "github.token", "********"),
        ("GITHUB_TOKEN", "ghp_0123456789", "github.token", "********"),
        ("GITLAB_PERSONAL_ACCESS_TOKEN", "glpat-0123456789", "gitlab.token", "********"),
        ("GITLAB_TOKEN", "glpat-0123456789", "gitlab.token", "********"),
        ("AGENT__LLM__OLLAMA__MODEL", "llama3.3", "llm.ollama.model", "llama3.3"),
        ("AGENT__LLM__OLLAMA__ENDPOINT", "http://x:1", "llm.ollama.base_url", "http://x:1"),
        ("AGENT__TASK_SOURCES", "local, gitlab", "task_sources", '["local", "gitlab"]'),
        ("AGENT__TASK_SOURCES", '["gitlab"]', "task_sources", '["gitlab"]'),
        ("AGENT__LIMITS__TURNS", "null", "limits.turns", ""),
        ("AGENT__SANDBOX__LIMITS__FILE_SIZE", "1.5G", "sandbox.limits.file_size", "1536M"),
        ("AGENT__GITHUB__OWNER", "acme", "github.owner", "acme"),
        ("AGENT__GITHUB__0__OWNER", "acme", "github.owner", "acme"),
        ("AGENT__LOCAL__REPOS", '{"app": "/srv/app"}', "local.repos", '{"app": "/srv/app"}'),
        ("AGENT__LOCAL__REPOS__app", "/srv/app", "local.repos", '{"app": "/srv/app"}'),
        ("AGENT__LLM__OPENAI__PRICE", '{"input": 2.5, "output": 10}', "llm.openai.price.output", "10"),
        ("AGENT__VERIFY__COMMAND", "make test, then [x]", "verify.command", "make test, then [x]"),
    ],
)
def test_every_kind_of_variable_reaches_its_key(tmp_path, name, value, key, shown):
    rows = {row[0]: row[1:] for row in load(written(tmp_path, ""), environ={name: value}).show()}
    assert rows[key] == (shown, f"environment {name}")


def test_a_variable_that_sets_a_part_of_what_belongs_together_is_refused(tmp_path):
    said = refused(written(tmp_path, ""), {"AGENT__LLM__OPENAI__PRICE__INPUT": "2.5"})
    assert "llm.openai.price.output is missing" in said


def test_a_variable_that_is_set_to_nothing_counts_as_unset(tmp_path):
    settings = load(
        written(tmp_path, ""), environ={"CLEANUP_DAYS": "", "OPENAI_API_KEY": " ", "AGENT__LIMITS__TURNS": ""}
    )
    assert settings.context_storage.cleanup_days == 30
    assert settings.llm.openai.api_key is None
    assert settings.limits.turns == 200


def test_the_agent_name_of_a_key_beats_the_seed_name(tmp_path):
    environ = {"OPENAI_MODEL": "a", "AGENT__LLM__OPENAI__MODEL": "b"}
    assert load(written(tmp_path, ""), environ=environ).llm.openai.model == "b"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("AGENT__LIMITS__TURN", "AGENT__LIMITS__TURNS"),
        ("AGENT__LLM__OPENAI__MODLE", "AGENT__LLM__OPENAI__MODEL"),
        ("AGENT__LIMITS__TURNS__MORE", "AGENT__LIMITS__TURNS"),
        ("AGENT__COMPRESSION_THRESHOLD", "AGENT__CONTEXT_STORAGE__COMPRESSION_THRESHOLD"),
    ],
)
def test_an_unknown_agent_variable_is_refused_with_the_nearest_one(tmp_path, name, near):
    said = refused(written(tmp_path, ""), {name: "1"})
    assert f"environment {name}: no key has this name" in said
    assert f"did you mean {near}?" in said


def test_a_wrong_value_in_the_environment_names_the_variable(tmp_path):
    said = refused(written(tmp_path, ""), {"CLEANUP_DAYS": "soon"})
    assert said == (
        "environment CLEANUP_DAYS: context_storage.cleanup_days: found 'soon'; allowed is a whole number from 0"
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "context_storage:\n  compresion_threshold: 0.7\n",
            ["line 2", "context_storage.compresion_threshold", "did you mean context_storage.compression_threshold?"],
        ),
        ("contextstorage: {}\n", ["line 1", "contextstorage is not a known key", "did you mean context_storage?"]),
        ("keep_recent_messages: 5\n", ["did you mean context_storage.keep_recent_messages?"]),
        ("zzz: 1\n", ["zzz is not a known key. Known here: task_sources, "]),
        (
            "limits:\n  turns: many\n",
            ["line 2: limits.turns: found 'many'; allowed is a whole number from 1, or empty"],
        ),
        ("limits: {turns: true}\n", ["limits.turns: found true; allowed"]),
        ("limits: {turns: 2.5}\n", ["limits.turns: found 2.5; allowed is a whole number"]),
        ("limits: {turns: 0}\n", ["limits.turns: found 0"]),
        ("limits: {wall_seconds: .inf}\n", ["limits.wall_seconds: found inf"]),
        ("limits: 5\n", ["limits: found a whole number (not shown); allowed is a mapping"]),
        ("limits: []\n", ["limits: found an empty list; allowed is a mapping"]),
        ("verify: make test\n", ["verify: found text (not shown); allowed is a mapping of command, timeout"]),
        ("context_storage: {compression_threshold: 7}\n", ["found 7; allowed is a number above 0 to 1"]),
        (
            "context_storage: {durability: turns}\n",
            ["found 'turns'; allowed is turn, message or none; did you mean turn?"],
        ),
        ("context_storage: {enabled: perhaps}\n", ["found 'perhaps'; allowed is true or false"]),
        ("context_storage: {base_dir: 5}\n", ["context_storage.base_dir: found 5; allowed is a path"]),
        ("context_storage: {base_dir: ''}\n", ["context_storage.base_dir: found nothing; allowed is a path"]),
        ("llm: {provider: opnai}\n", ["llm.provider: found 'opnai'", "did you mean openai?"]),
        ("llm: {openai: {model: ''}}\n", ["llm.openai.model: found nothing; allowed is text"]),
        ("llm: {openai: {model: }}\n", ["llm.openai.model: found nothing; allowed is text"]),
        ("llm: {openai: {model: 4}}\n", ["llm.openai.model: found 4; allowed is text"]),
        (
            "llm: {ollama: {endpoint: 'http:/localhost:11434'}}\n",
            ["llm.ollama.base_url: found 'http:/localhost:11434'; allowed is an address http"],
        ),
        ("llm: {openai: {base_url: 'ftp://x/'}}\n", ["llm.openai.base_url: found 'ftp://x/'"]),
        ("llm: {openai: {price: {input: 1}}}\n", ["llm.openai.price.output is missing; allowed is a number from 0"]),
        ("task_sources: []\n", ["task_sources: found an empty list; allowed is a list, each local"]),
        ("task_sources: [local, githb]\n", ["task_sources, entry 2: found 'githb'", "did you mean github?"]),
        ("task_sources: local\n", ["task_sources: found 'local'; allowed is a list"]),
        ("task_sources:\n", ["task_sources: found nothing; allowed is a list"]),
        ("task_sources: [local, local]\n", ["task_sources: local stands in the list twice"]),
        (
            "llm: {openai: {base_url: 'http://h:x'}}\n",
            ["llm.openai.base_url: found 'http://h:x'; allowed is an address"],
        ),
        ("taskqueue: {broker: 'mqtt://u:hidden-pw@x'}\n", ["found 'mqtt://u:********@x'; allowed is amqp"]),
        ("workspace: {setup: {network: true}}\n", ["workspace.setup.command is missing; allowed is text"]),
        ("github: {tokn: x}\n", ["github.tokn is not a known key; did you mean github.token?"]),
        ("github:\n- {}\n- {ownr: x}\n", ["line 3: github.1.ownr is not a known key; did you mean github.1.owner?"]),
        ("github: 5\n", ["github: found a whole number (not shown)"]),
        ("github: {app: {id: 1}}\n", ["github.app: needs either private_key or private_key_file"]),
        ("local: {done_label: Coding Agent}\n", ["local: bot_label and done_label are the same label"]),
        (f"github: {{done_label: {'x' * 51}}}\n", ["github: done_label has 51 characters; the host takes 50"]),
        ("forgejo: {bot_label: 'a, b'}\n", ["forgejo: bot_label has ',', which the host takes in no label"]),
        ("limts: {}\n", ["limts is not a known key; did you mean limits? (every key: docs/configuration.md)"]),
        ("local: {repos: {app: 5}}\n", ["local.repos.app: found 5; allowed is a mapping of names, each a path"]),
        ("sandbox: {kind: docker}\n", ["sandbox.kind: found 'docker'; allowed is auto, bubblewrap, none"]),
        ("sandbox: {limits: {memory: 5X}}\n", ["sandbox.limits.memory: found '5X'; allowed is bytes"]),
        ("taskqueue: {broker: 'mqtt://x'}\n", ["taskqueue.broker: found 'mqtt://x'; allowed is amqp://…"]),
        ("mcp_servers: [{command: x}]\n", ["mcp_servers: found a list; allowed is a mapping of names"]),
        (
            "mcp_servers:\n  Fs: {command: x}\n",
            ["line 2: mcp_servers.Fs: 'Fs' is no name of a server; allowed are lower"],
        ),
        ("mcp_servers:\n  a--b: {command: x}\n", ["mcp_servers.a--b: 'a--b' is no name of a server"]),
        ("mcp_servers:\n  fs: {}\n", ["line 2: mcp_servers.fs: has neither `command` nor `url`"]),
        ("mcp_servers: {fs: {command: x, url: 'https://a.b'}}\n", ["mcp_servers.fs: has both `command` and `url`"]),
        ("mcp_servers: {fs: {url: 'http://a.example'}}\n", ["fs.url: http to a.example is not encrypted; allowed are"]),
        ("mcp_servers: {fs: {url: 'https://a:b@c'}}\n", ["fs.url: has a user or a password in it"]),
        ("mcp_servers: {fs: {url: 'https://a.b', cwd: x}}\n", ["mcp_servers.fs: has `url` and cwd"]),
        ("mcp_servers: {fs: {command: x, headers: {A: b}}}\n", ["mcp_servers.fs: has `command` and headers"]),
        (
            "mcp_servers: {fs: {command: x, comand: y}}\n",
            ["fs.comand is not a known key; did you mean mcp_servers.fs.c"],
        ),
        ("mcp_servers: {fs: {command: -l}}\n", ["mcp_servers.fs.command: '-l' is no program; put options into `args`"]),
        (
            "mcp_servers: {fs: {command: x, timeout: 0}}\n",
            ["mcp_servers.fs.timeout: found 0; allowed is a number above"],
        ),
        (
            "mcp_servers: {fs: {command: x, tools: [1]}}\n",
            ["mcp_servers.fs.tools, entry 1: found 1; allowed is a list"],
        ),
        (
            "mcp_servers: {fs: {command: x, env: {A-B: c}}}\n",
            ["mcp_servers.fs.env.A-B: 'A-B' is no name of a variable"],
        ),
        ("mcp_servers: {fs: {command: x, network: ['http://x/']}}\n", ["mcp_servers.fs.network, entry 1: found"]),
    ],
)
def test_what_is_wrong_is_named_with_line_key_found_allowed_and_the_nearest_key(tmp_path, text, parts):
    path = written(tmp_path, text)
    said = refused(path)
    assert said.startswith(f"{path}, line ")
    for part in parts:
        assert part in said


@pytest.mark.parametrize(
    "key",
    [
        *(
            f"llm.{one}.{time}"
            for one in ("openai", "ollama", "lmstudio", "anthropic")
            for time in ("timeout", "idle_timeout")
        ),
        "workspace.setup.timeout",
        "verify.timeout",
    ],
)
def test_no_time_out_can_be_switched_off(tmp_path, key):
    """Every step ends by itself: a worker that hangs is found by the step that has outlived its time-out."""
    for value in ("0", "-1", ".inf", ".nan"):
        nested = value
        for word in reversed(key.split(".")):
            more = ", command: x" if word == "timeout" and "setup" in key else ""
            nested = f"{{{word}: {nested}{more}}}"
        assert f"{key}: found {value.lstrip('.')}" in refused(written(tmp_path, nested + "\n"))


def test_every_fault_is_told_at_once_in_the_order_of_the_file(tmp_path):
    said = refused(written(tmp_path, "limits: {turns: x}\nfoo: 1\nverify: {timeout: y}\n"))
    assert [line.partition(": ")[0][-6:] for line in said.splitlines()] == ["line 1", "line 2", "line 3"]


def test_a_value_that_switches_the_isolation_off_is_never_proposed(tmp_path):
    assert "did you mean" not in refused(written(tmp_path, "sandbox: {kind: nine}\n"))


def test_a_section_with_nothing_below_it_has_its_defaults(tmp_path):
    settings = load(
        written(tmp_path, "local:\nllm:\n  ollama:\ngithub:\nmcp_servers: {}\nworkspace: {setup: }\n"), environ={}
    )
    assert settings == load(written(tmp_path, ""), environ={})


def test_relative_paths_count_from_the_folder_of_the_file(tmp_path):
    text = "context_storage: {base_dir: ../c}\nlocal: {tracker: t, repos: {a: ., b: /b}}\nsandbox: {read_only: [x]}\n"
    (tmp_path / "conf").mkdir()
    settings = load(written(tmp_path / "conf", text), environ={})
    assert settings.root == tmp_path / "conf"
    assert settings.base_dir == tmp_path / "c"
    assert settings.local.tracker == tmp_path / "conf" / "t"
    assert settings.local.repos == {"a": tmp_path / "conf", "b": Path("/b")}
    assert settings.sandbox.read_only == (tmp_path / "conf" / "x",)


def test_a_name_in_braces_is_taken_from_the_environment(tmp_path):
    path = written(tmp_path, 'llm: {openai: {api_key: "${KEY}", model: "a-${M}-$${M}"}}\nlimits: {turns: "${T}"}\n')
    settings = load(path, environ={"KEY": "sk-12345678", "M": "${KEY}", "T": "5"})
    assert settings.llm.openai.api_key is not None
    assert settings.llm.openai.api_key.get_secret_value() == "sk-12345678"
    assert settings.llm.openai.model == "a-${KEY}-${M}"
    assert settings.limits.turns == 5


@pytest.mark.parametrize(
    "text",
    [
        'llm: {openai: {api_key: "${KEY}"}}\n',
        'llm: {provider: ollama, ollama: {model: "x-${KEY}"}}\n',
        'context_storage: {summary_model: {provider: anthropic}}\nllm: {anthropic: {api_key: "${KEY}"}}\n',
        'task_sources: [github]\ngithub: {token: "${KEY}"}\n',
        'task_sources: [github]\ngithub: [{token: x}, {token: "${KEY}"}]\n',
        'limits: {turns: "${KEY}"}\n',
        'llm: {provider: "mine.models:Client", plugin: {api_key: "${KEY}"}}\n',
    ],
)
@pytest.mark.parametrize("environ", [{}, {"KEY": ""}])
def test_an_unset_name_in_a_section_in_use_is_an_error(tmp_path, text, environ):
    said = refused(written(tmp_path, text), environ)
    assert "found ${KEY}, but the environment has no KEY" in said
    assert ", line " in said


@pytest.mark.parametrize(
    "text",
    [
        'llm: {anthropic: {api_key: "${KEY}", model: "${M}"}}\n',
        'task_sources: [local]\ngithub: {token: "${KEY}"}\ngitlab: [{token: "${KEY}", allowed_users: ["${U}"]}]\n',
        'llm: {plugin: {api_key: "${KEY}"}}\n',
    ],
)
def test_an_unset_name_elsewhere_leaves_the_default(tmp_path, text):
    assert load(written(tmp_path, text), environ={}) == load(written(tmp_path, ""), environ={})


def test_an_unset_name_does_not_matter_where_a_higher_layer_has_the_value(tmp_path):
    path = written(tmp_path, 'llm: {openai: {api_key: "${MY_KEY}"}}\n')
    settings = load(path, environ={"OPENAI_API_KEY": "sk-12345678"})
    assert settings.origins["llm.openai.api_key"] == "environment OPENAI_API_KEY"
    load(path, environ={}, overrides={"llm.provider": "ollama"})


def test_a_command_that_only_looks_does_not_need_what_is_unset(tmp_path):
    path = written(tmp_path, 'llm: {openai: {api_key: "${MY_KEY}"}}\n')
    settings = load(path, environ={}, complete=False)
    assert settings.llm.openai.api_key is None
    assert settings.origins["llm.openai.api_key"] == "config.yaml, MY_KEY is not set"


def test_an_item_of_a_list_that_is_not_set_is_an_error_and_not_left_out(tmp_path):
    path = written(tmp_path, 'sandbox: {network: ["${MINE}", pypi.org]}\n')
    assert "sandbox.network: found ${MINE}, but the environment has no MINE" in refused(path, {})
    assert load(path, environ={}, complete=False).origins["sandbox.network"] == "config.yaml, MINE is not set"
    assert load(path, environ={"MINE": "a.org"}).origins["sandbox.network"] == "config.yaml"


@pytest.mark.parametrize("value", ["${A:-b}", "${}", "${A", "${A B}"])
def test_braces_around_anything_but_a_name_are_refused(tmp_path, value):
    said = refused(written(tmp_path, f"verify:\n  command: '{value}'\n"), {"A": "1"})
    assert "line 2: verify.command has ${…} around something that is not a name" in said


def test_endpoint_and_base_url_are_one_key_and_must_not_differ(tmp_path):
    for provider in ("openai", "ollama", "lmstudio", "anthropic", "plugin"):
        for key in ("endpoint", "base_url"):
            settings = load(written(tmp_path, f"llm: {{{provider}: {{{key}: 'http://h:1'}}}}\n"), environ={})
            assert settings.provider_of(provider if provider != "plugin" else "a.b:C").base_url == "http://h:1"
    said = refused(written(tmp_path, "llm: {ollama: {endpoint: 'http://a', base_url: 'http://b'}}\n"))
    assert "llm.ollama has both endpoint and base_url" in said


@pytest.mark.parametrize(
    "address", ["localhost:1234", "gpu-box:8000/v1/", "127.0.0.1:11434", "[::1]:8080", "api.example.org"]
)
def test_the_address_of_a_model_server_may_lack_its_scheme(tmp_path, address):
    text = f"llm: {{provider: lmstudio, lmstudio: {{base_url: '{address}'}}}}\n"
    assert load(written(tmp_path, text), environ={}).provider().base_url == address
    assert load(written(tmp_path, ""), environ={"OLLAMA_ENDPOINT": address}).provider_of("ollama").base_url == address


@pytest.mark.parametrize(
    "address", ["localhost:port", "localhost:99999", "a b:1", "http:/x", ":1234", "ftp://x", "//x"]
)
def test_what_is_no_address_without_a_scheme_either_is_refused(tmp_path, address):
    said = refused(written(tmp_path, f"llm: {{lmstudio: {{base_url: '{address}'}}}}\n"))
    assert f"llm.lmstudio.base_url: found {address!r}; allowed is an address http://…, https://… or host:port" in said


def test_one_host_or_a_list_of_hosts(tmp_path):
    one = load(written(tmp_path, "github: {owner: a}\n"), environ={})
    assert [host.owner for host in one.github] == ["a"]
    assert one.origins["github.owner"] == "config.yaml"
    two = load(written(tmp_path, "github:\n- {owner: a}\n- {base_url: 'https://ghe.example/api/v3'}\n"), environ={})
    assert [host.base_url for host in two.github] == ["https://api.github.com", "https://ghe.example/api/v3"]
    assert two.origins["github.0.owner"] == "config.yaml"
    assert two.origins["github.1.owner"] == "default"


def test_a_token_of_the_environment_never_goes_to_another_host(tmp_path):
    text = "github:\n- {base_url: 'https://ghe.example/api/v3', token: own-token-1}\n- {owner: a}\n"
    settings = load(written(tmp_path, text), environ={"GITHUB_TOKEN": "ghp_public00"})
    tokens = [host.token.get_secret_value() if host.token else None for host in settings.github]
    assert tokens == ["own-token-1", "ghp_public00"]
    assert settings.origins["github.1.token"] == "environment GITHUB_TOKEN"
    only = "gitlab: {base_url: 'https://git.example'}\n"
    host = load(written(tmp_path, only), environ={"GITLAB_TOKEN": "glpat-000000"}).gitlab[0]
    assert host.token is not None
    app = "github: {app: {id: 5, private_key_file: key.pem}}\n"
    host = load(written(tmp_path, app), environ={"GITHUB_TOKEN": "ghp_public00"}).github[0]
    assert host.token is None
    assert host.app is not None
    assert host.app.private_key_file == tmp_path / "key.pem"


def test_a_variable_about_one_of_several_hosts_needs_a_number(tmp_path):
    path = written(tmp_path, "github: [{owner: a}, {owner: b}]\n")
    said = refused(path, {"AGENT__GITHUB__OWNER": "c"})
    assert "github has 2 entries; say which one, as in AGENT__GITHUB__0__OWNER" in said
    assert "the number is from 0 to 1" in refused(path, {"AGENT__GITHUB__2__OWNER": "c"})
    settings = load(path, environ={"AGENT__GITHUB__1__OWNER": "c"})
    assert [host.owner for host in settings.github] == ["a", "c"]


def test_a_mapping_in_a_variable_must_be_json(tmp_path):
    said = refused(written(tmp_path, ""), {"AGENT__LOCAL__REPOS": "app=x"})
    assert "environment AGENT__LOCAL__REPOS: found text that is not JSON; allowed is a mapping of names" in said


def test_dotted_paths_of_plugins_are_accepted(tmp_path):
    text = "task_sources: [mine.forge:Forge]\nllm: {provider: mine.llm.Client}\nsandbox: {kind: 'mine.box:Box'}\n"
    settings = load(written(tmp_path, text), environ={})
    assert settings.provider().name == "mine.llm.Client"


def test_an_unknown_provider_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="known are openai, ollama"):
        load(written(tmp_path, ""), environ={}).provider_of("nope")


SEED = """
context_storage:
  enabled: true
  base_dir: "contexts"
  compression_threshold: 0.7
  keep_recent_messages: 5
  cleanup_days: 30
  summary_prompt: |
    以下のメッセージ履歴を簡潔かつ包括的に要約してください。
    {messages}
llm:
  provider: "openai"
  openai:
    model: "gpt-4o"
    context_length: 128000
    api_key: "${OPENAI_API_KEY}"
    base_url: "https://api.openai.com/"
  ollama:
    model: "qwen3-30b"
    context_length: 32768
"""


def test_the_mapping_of_the_seed_is_accepted(tmp_path, monkeypatch):
    import yaml

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings = settings_of(yaml.safe_load(SEED))
    assert settings.provider().model == "gpt-4o"
    assert settings.provider().context_length == 128000
    assert settings.provider().api_key is None
    assert settings.provider_of("ollama").base_url == "http://localhost:11434"
    assert settings.base_dir == tmp_path / "contexts"
    assert "要約" in settings.context_storage.summary_prompt
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment")
    key = settings_of(yaml.safe_load(SEED)).provider().api_key
    assert key is not None
    assert key.get_secret_value() == "sk-from-environment"
    assert settings_of(settings) is settings


def test_a_mapping_is_taken_as_it_is_whatever_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere")
    settings = settings_of({"llm": {"openai": {"base_url": "http://127.0.0.1:9"}}}, root=tmp_path)
    assert settings.provider().base_url == "http://127.0.0.1:9"
    assert settings.root == tmp_path


def test_a_mapping_is_not_changed_and_its_faults_are_told():
    mapping = {"llm": {"ollama": {"endpoint": "http://x"}}, "github": {"owner": "a"}}
    settings_of(mapping)
    assert mapping == {"llm": {"ollama": {"endpoint": "http://x"}}, "github": {"owner": "a"}}
    with pytest.raises(ConfigError, match="modle is not a known key; did you mean llm"):
        settings_of({"llm": {"openai": {"modle": "x"}}})
    with pytest.raises(ConfigError, match="found list"):
        settings_of([1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("context_storage.base_dir", {"context_storage": {"base_dir": "con\ntexts"}}),
        ("local.tracker", {"local": {"tracker": "track\x1b[2Jer"}}),
        ("local.repos.default", {"local": {"repos": {"default": "/srv/re\0po"}}}),
        ("sandbox.read_only, entry 1", {"sandbox": {"read_only": ["/opt/\u2028tools"]}}),
        ("github.ca_file", {"github": {"ca_file": "/etc/\x85ca.pem"}}),
        ("llm.replay.messages", {"llm": {"replay": {"messages": "\x7fmessages.jsonl"}}}),
    ],
)
def test_a_path_with_a_control_character_is_refused_at_every_key(key, sections):
    with pytest.raises(ConfigError) as caught:
        settings_of(sections)
    assert key in str(caught.value)
    assert "a path with U+" in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_path_may_have_any_other_sign(tmp_path):
    base_dir = str(tmp_path / "日本 \u00a0 'é' 🎌")
    assert str(settings_of({"context_storage": {"base_dir": base_dir}}).base_dir) == base_dir


def test_a_list_with_a_wrong_entry_is_one_complaint(tmp_path):
    (tmp_path / "config.yaml").write_text("task_sources: [lokal]\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml", environ={})
    assert str(caught.value).count("\n") == 0
    assert str(caught.value).endswith("did you mean local?")


def test_servers_of_mcp_are_sections_by_name_with_secrets(tmp_path):
    path = written(
        tmp_path,
        "mcp_servers:\n"
        "  files: {command: node, args: [a, ''], env: {TOKEN: '${FILES_TOKEN}'}}\n"
        "  web: {url: 'http://localhost:3/mcp', headers: {Authorization: Bearer 1234567890}, tools: [find]}\n",
    )
    environ = {
        "FILES_TOKEN": "of-the-files",
        "AGENT__MCP_SERVERS__WEB__TIMEOUT": "5",
        "AGENT__MCP_SERVERS__FILES__ENV__OTHER": "other-secret",
    }
    settings = load(path, environ=environ)
    files, web = settings.mcp_servers["files"], settings.mcp_servers["web"]
    assert (files.command, files.args, files.timeout) == ("node", ("a", ""), 60)
    assert {name: value.get_secret_value() for name, value in files.env.items()} == {
        "TOKEN": "of-the-files",
        "OTHER": "other-secret",
    }
    assert (web.url, web.tools, web.timeout, web.trust_changes) == ("http://localhost:3/mcp", ("find",), 5, False)
    assert {"of-the-files", "other-secret", "Bearer 1234567890", "1234567890"} <= set(settings.secrets())
    shown = {key: (text, origin) for key, text, origin in settings.show()}
    assert shown["mcp_servers.files.env"][0] == '{"TOKEN": "********", "OTHER": "********"}'
    assert shown["mcp_servers.web.timeout"] == ("5", "environment AGENT__MCP_SERVERS__WEB__TIMEOUT")
    assert shown["mcp_servers.web.url"] == ("http://localhost:3/mcp", "config.yaml")

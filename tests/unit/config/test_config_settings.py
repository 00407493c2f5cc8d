"""Secrets, showing, pickling, the host's environment."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.config import Settings, load, settings_of
from agent.config.environment import host_environment
from agent.errors import ConfigError

TEXT = """
task_sources: [github]
llm:
  openai: {api_key: sk-abcdefgh12345678, price: {input: 2.5, output: 10}}
  lmstudio: {api_key: zq9xw}
github: {token: ghp_abcdefgh}
taskqueue: {broker: "amqp://user:s3cret%2Fword@host/"}
limits: {turns: 10}
"""


@pytest.fixture
def settings(tmp_path) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    environ = {
        "GITLAB_TOKEN": "glpat-from-environment",
        "GITHUB_TOKEN": "ghp_second",
        "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_first00",
        "HTTPS_PROXY": "http://me:proxy-password@proxy:3128",
        "GPT_4O_MAX_CONTEXT_TOKENS": "64000",
        "UNRELATED": "stays-out-of-it",
    }
    return load(path, environ=environ)


def test_every_declared_secret_is_known_the_longest_first(settings):
    secrets = settings.secrets()
    assert set(secrets) == {
        "sk-abcdefgh12345678",
        "ghp_first00",
        "ghp_second",
        "glpat-from-environment",
        "s3cret%2Fword",
        "s3cret/word",
        "proxy-password",
    }
    assert [len(one) for one in secrets] == sorted((len(one) for one in secrets), reverse=True)


def test_nothing_that_is_shown_or_printed_holds_a_secret(settings):
    everything = repr(settings) + str(settings.show()) + repr(settings.provider())
    for secret in ("sk-abcdefgh12345678", "ghp_first00", "glpat-from-environment", "zq9xw"):
        assert secret not in everything
    rows = {row[0]: row[1:] for row in settings.show()}
    assert rows["taskqueue.broker"] == ("amqp://user:********@host/", "config.yaml")
    assert rows["llm.openai.api_key"] == ("********", "config.yaml")
    assert rows["llm.openai.price.input"] == ("2.5", "config.yaml")
    assert rows["llm.openai.price.cached"] == ("", "default")
    assert "\n" not in rows["context_storage.summary_prompt"][0]


def test_an_error_about_a_secret_does_not_repeat_it(tmp_path):
    from agent.errors import ConfigError

    path = tmp_path / "config.yaml"
    for text in (
        "github: {token: 123456789}\n",
        "github: {token: [sk-hidden]}\n",
        "llm: sk-hidden\n",
        "tokn: sk-hidden\n",
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load(path, environ={})
        assert "sk-hidden" not in str(caught.value)
        assert "123456789" not in str(caught.value)


def test_settings_cannot_be_changed(settings):
    with pytest.raises(ValidationError):
        settings.limits = None
    with pytest.raises(ValidationError):
        settings.limits.turns = 5


def test_settings_travel_to_another_process_whole_and_small(settings):
    packed = pickle.dumps(settings)
    again = pickle.loads(packed)
    assert again == settings
    assert again.secrets() == settings.secrets()
    assert again.origins == settings.origins
    assert again.root == settings.root
    assert again.provider().context_length == 64000
    assert len(packed) < 20_000
    assert b"stays-out-of-it" not in packed


def test_the_provider_in_use_has_everything_a_client_needs(settings):
    provider = settings.provider()
    assert (provider.name, provider.model, provider.base_url) == ("openai", "gpt-4o", "https://api.openai.com/")
    assert (provider.timeout, provider.idle_timeout, provider.max_output_tokens) == (1800, 120, None)
    assert provider.price is not None
    assert (provider.price.input, provider.price.cached, provider.price.output) == (2.5, None, 10)
    assert settings.provider_of("replay").base_url == ""


def test_children_get_a_small_environment_without_secrets():
    environ = {
        "PATH": "/bin",
        "HOME": "/home/x",
        "LC_ALL": "ja_JP.UTF-8",
        "https_proxy": "http://p:1",
        "OPENAI_API_KEY": "sk-1",
        "GITHUB_TOKEN": "x",
        "LD_PRELOAD": "y",
        "PYTHONPATH": "z",
    }
    assert host_environment(environ) == {
        "PATH": "/bin",
        "HOME": "/home/x",
        "LANG": "C.UTF-8",
        "LC_ALL": "ja_JP.UTF-8",
        "https_proxy": "http://p:1",
    }
    assert "https_proxy" not in host_environment(environ, network=False)
    assert host_environment({})["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    assert host_environment()["PATH"]


def test_importing_the_room_loads_neither_yaml_nor_anything_heavy():
    code = (
        "import sys, agent.config; heavy = {'yaml', 'requests', 'structlog', 'pydantic_settings', 'rich', 'asyncio', "
        "'multiprocessing'}; print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def no_file(folder):
    (folder / "config.yaml").write_text("task_sources: [local]\n")
    return folder / "config.yaml"


@pytest.mark.parametrize(
    "address",
    [
        "/mnt/shared/makimono",
        "file:///mnt/shared",
        "s3://bucket/tasks?endpoint_url=http://127.0.0.1:9000&key=AKIAIOSFODNN7EXAMPLE&secret=the-secret-of-it",
        "gs://bucket",
        "sftp://me:the-secret-of-it@host/tasks",
    ],
)
def test_a_replica_may_lie_in_any_place_that_fsspec_knows_and_its_secrets_are_masked(address, tmp_path):
    settings = load(no_file(tmp_path), environ={"AGENT__CONTEXT_STORAGE__REPLICA": address})
    assert settings.context_storage.replica == address
    (shown,) = [value for key, value, _ in settings.show() if key == "context_storage.replica"]
    for secret in ("the-secret-of-it", "AKIAIOSFODNN7EXAMPLE"):
        assert secret not in shown
        assert (secret in settings.secrets()) is (secret in address)


@pytest.mark.parametrize(
    "address", ["contexts", "../x", "http://host/x", "s3://", "s3:bucket", "file://host/x", "memory://x", "s3://b/\n"]
)
def test_any_other_place_for_a_replica_is_refused_with_what_is_allowed(address, tmp_path):
    with pytest.raises(ConfigError, match=r"context_storage\.replica.*an absolute path, or an address file://"):
        load(no_file(tmp_path), environ={"AGENT__CONTEXT_STORAGE__REPLICA": address})


def test_the_paths_have_the_keys_and_the_order_of_the_definitions():
    hosts = [{"base_url": f"https://{name}.example", "ca_file": f"/{name}.pem", "token": "t" * 20} for name in "ab"]
    settings = settings_of(
        {
            "llm": {"provider": "openai", "openai": {"model": "m", "context_length": 9000}},
            "local": {"tracker": "/issues", "repos": {"default": "/repository"}},
            "github": hosts,
            "gitlab": hosts[:1],
        }
    )
    known = [(key, value) for key, value, _ in settings.values() if isinstance(value, Path)]
    assert {"github.0.ca_file", "github.1.ca_file", "gitlab.ca_file", "local.tracker"} <= {key for key, _ in known}
    assert settings.paths() == [*known, ("local.repos.default", Path("/repository"))]

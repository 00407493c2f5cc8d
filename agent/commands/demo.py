"""`demo` makes a tracker and a repository with a real bug in a folder of their own, and lets the daemon work on it.

The demo works in the same way as the program always does: issue, queue, worker, sandbox, push, pull request. If no
model answers, or there is no sandbox for its commands, the demo uses a recording in place of a model (`find_model`),
and says so. `cli/solve.py` shows the results of the demo in order.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from agent import clock, durable_files, filetree
from agent.config import load
from agent.config.configured_window import configured_window
from agent.context import MessageStore
from agent.daemon.daemon import Daemon
from agent.errors import ModelError, UsageError
from agent.forge.local import issue_files
from agent.gitcmd import Identity, git
from agent.llm import make_client, urls
from agent.llm.server_info import same_model
from agent.sandbox import Mounts, make_sandbox, probe, sandbox_user
from agent.store import configured_ledger
from agent.store.jsonl import records
from agent.wiring.folders import folder_of
from agent.wiring.wiring import Wiring
from agent.work import untrusted_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.observe.events import Events
    from agent.taskqueue import Row
    from agent.values import Finished, Json

TEST = "python3 -m unittest"
DATA = files("agent.commands") / "demo_data"
TRIAL = "00000000-0000-4000-8000-00000000de30"
"""The name of the sandbox in which the demo runs the tests before and after the work; it is not a task."""

HOSTED, RECORDING = "openai", "replay"
"""The provider that needs a key, and the provider that plays the recorded conversation."""

WINDOWS = {HOSTED: 32_768, "ollama": 16_384, "lmstudio": 16_384}
"""Provider → the window in tokens that the demo configures for a model with an unknown window, in the order in which
the demo tries them."""

LIKED = ("qwen3-coder", "qwen3", "gpt-oss", "devstral", "qwen2.5-coder", "qwen2.5", "mistral", "llama3", "gpt-", "")
NO_TALKER = ("embed", "bge-", "rerank", "whisper", "tts", "moderation", "dall-e", "image", "audio", "realtime", "-vl")


@dataclass(frozen=True, slots=True)
class DemoModel:
    """The model that the demo uses.

    `passed_over` are sentences about the providers that could not be used; `keys` are the keys of config.yaml for this
    model, in dotted form. `is_replay`: the model is the recording.
    """

    provider: str
    model: str
    passed_over: tuple[str, ...]
    keys: dict[str, Any]
    is_replay: bool = False


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of the demo's tests on one branch."""

    branch: str
    command: str
    exit_code: int
    output: str


@dataclass
class Demo:
    """One demo in `folder`; `made`: the program created the folder itself, and removes it again."""

    folder: Path
    made: bool

    @classmethod
    def prepare(cls, wanted: Path | None) -> Demo:
        """Make the demo's folder with tracker and repository. Raises UsageError when the folder that the person named
        is not empty."""
        if wanted is None:
            folder, made = Path(tempfile.mkdtemp(prefix="makimono-demo-")).resolve(), True
            folder.chmod(durable_files.passable())
        else:
            folder, made = wanted.absolute(), not wanted.exists()
            if not made and (not folder.is_dir() or any(folder.iterdir())):
                raise UsageError(f"{folder} is there and not empty; name a new folder for the demo")
            durable_files.make_dir(folder, durable_files.passable())
        durable_files.temporary(folder / "tmp")
        demo = cls(folder, made)
        demo.write()
        return demo

    def write(self) -> None:
        """Write the demo's tracker with its issue, and its repository with the first commit."""
        tracker = durable_files.make_dir(self.folder / "tracker", 0o755)
        issue_files.write_issue(tracker, "1", (DATA / "issue.md").read_bytes(), mode=0o644)
        with as_file(DATA / "repository") as source:
            shutil.copytree(source, self.repository, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))  # ours
        git_dir = self.repository / ".git"
        who = Identity("Alice", "alice@example.com").environment(clock.now().timestamp())
        git("init", "--quiet", "--template=", "--initial-branch=main", "--", str(self.repository))
        git("add", "--all", git_dir=git_dir, work_tree=self.repository)
        git(
            "commit",
            "--quiet",
            "-m",
            "Invoices with value added tax",
            git_dir=git_dir,
            work_tree=self.repository,
            env=who,
        )

    @property
    def repository(self) -> Path:
        """The repository of the demo's issue."""
        return self.folder / "billing"

    @property
    def config(self) -> Path:
        """The path of the demo's config.yaml, with which every other command works on the demo."""
        return self.folder / "config.yaml"

    # --- the model ---------------------------------------------------------------------------------------------

    def load(self, **keys: Any) -> Settings:
        """The settings of the demo; they override paths of trackers and folders that the environment sets."""
        fixed = {
            "task_sources": ["local"],
            "local.tracker": str(self.folder / "tracker"),
            "local.repos": {"default": str(self.repository)},
            "context_storage.base_dir": str(self.folder / "contexts"),
            "context_storage.enabled": True,
            "taskqueue.ledger": configured_ledger.OWN,
            "verify.command": TEST,
        }
        if not self.config.exists():
            durable_files.write_file(self.config, b"{}\n", 0o644)
        return load(self.config, overrides=fixed | keys)

    @cached_property
    def find_model(self) -> DemoModel:
        """The model behind OPENAI_API_KEY, else a model of Ollama, else of LM Studio, else the recording.

        If the environment names a provider of models, the demo tries only that provider. Without a working sandbox the
        demo uses the recording.
        """
        settings = self.load(**{"llm.replay.messages": str(self.recording)})
        named = settings.llm.provider if settings.origin("llm.provider") != "default" else None
        passed_over: list[str] = []
        candidates = [named] if named else list(WINDOWS)
        if settings.llm.openai.api_key is None and not named:
            candidates.remove(HOSTED)
            passed_over.append("OPENAI_API_KEY is not set")
        for provider in candidates:
            if provider == RECORDING:
                continue
            model, why = self.choose_model(settings, provider)
            if not model:
                passed_over.append(why)
                continue
            if not (verdict := probe(settings)).ok:
                passed_over.append(f"{provider} answers, but no sandbox: {verdict.reason}")
                continue
            keys: dict[str, Any] = {"llm.provider": provider, f"llm.{provider}.model": model}
            if provider in WINDOWS and not window_is_known(settings, provider, model):
                keys[f"llm.{provider}.context_length"] = WINDOWS[provider]
            return DemoModel(provider, model, tuple(passed_over), keys)
        keys = {"llm.provider": RECORDING, "llm.replay.messages": str(self.recording)}
        if not probe(settings).ok:
            passed_over.append(
                "there is no sandbox here (`doctor` says why); the recording runs without one: its commands are known"
            )
            keys["sandbox.kind"] = "none"
        return DemoModel(RECORDING, RECORDING, tuple(passed_over), keys, is_replay=True)

    @cached_property
    def recording(self) -> Path:
        """Write the recorded conversation into the demo's folder, and return its path."""
        target = self.folder / "recorded.jsonl"
        durable_files.write_file(target, (DATA / "messages.jsonl").read_bytes(), 0o644)
        return target

    def choose_model(self, settings: Settings, provider: str) -> tuple[str, str]:
        """(a model that the provider's server lists, ""), or ("", the reason why there is none)."""
        address = urls.clean(settings.provider_of(provider).base_url)
        if not is_listening(address):
            return "", f"nothing answers at {address} ({provider})"
        with tempfile.TemporaryDirectory(prefix="makimono-model-") as place:
            path = Path(place)
            with closing(MessageStore(path, settings)) as store:
                client = make_client(settings, store, path, provider=provider)
                try:
                    listed = client.models()
                except ModelError as error:
                    return "", str(error)
                finally:
                    client.close()
        model = preferred_model(listed, client.model)
        return (model, "") if model else ("", f"{provider} at {address} has no model that can be used")

    @cached_property
    def settings(self) -> Settings:
        """The settings of the demo with the chosen model, which are also written to its config.yaml."""
        keys = dict(self.find_model.keys)
        nested: Json = {
            "task_sources": ["local"],
            "local": {"tracker": "tracker", "repos": {"default": "billing"}},
            "verify": {"command": TEST},
        }
        for key, value in keys.items():
            *steps, last = key.split(".")
            place = nested
            for step in steps:
                place = place.setdefault(step, {})
            place[last] = "recorded.jsonl" if last == "messages" else value
        durable_files.write_file(self.config, yaml.safe_dump(nested, sort_keys=False).encode(), 0o644)
        return self.load(**keys)

    @property
    def place_of_commands(self) -> str:
        """A phrase about where the model's commands run."""
        return "commands in a sandbox" if probe(self.settings).isolates else "commands without a sandbox"

    # --- the work ----------------------------------------------------------------------------------------------

    def run_daemon(self, events: Events, heard: Events | None = None) -> int:
        """Run the daemon as `run --once` does; returns its exit code."""
        return Daemon(self.settings, events, heard).run(once=True)

    def row(self) -> Row | None:
        """The row of the demo's task, None when it was never queued."""
        with closing(Wiring(self.settings)) as wiring:
            rows = wiring.ledger.list(limit=1)
        return rows[0] if rows else None

    def test(self, branch: str) -> Tested:
        """Check the branch out into a temporary folder and run the tests there, in the sandbox if there is one."""
        base_dir = durable_files.make_dir(self.settings.base_dir, durable_files.passable())
        place = Path(tempfile.mkdtemp(prefix="checkout-", dir=base_dir))
        try:
            checkout = place / "billing"
            git("clone", "--quiet", f"--branch={branch}", "--", str(self.repository), str(checkout), env=LOCAL)
            sandbox = make_sandbox(self.settings, uuid=TRIAL, base_dir=base_dir)
            sandbox_user.share(place, sandbox.uid)
            if sandbox.uid is not None:
                untrusted_tree.change_owner(checkout, sandbox.uid)
            done = sandbox.run(TEST, Mounts(work=checkout), timeout=120)
        finally:
            with suppress(OSError):
                filetree.remove(place)
        return Tested(branch, TEST, done.returncode, text_of(done))

    def diff(self, branch: str) -> str:
        """The diff of the branch that the demo's task made."""
        done = git("diff", "--no-color", f"main...{branch}", git_dir=self.repository / ".git")
        return done.output.decode("utf-8", "replace")

    def pull(self) -> Path | None:
        """The path of the file with the demo's pull request; None if there is none."""
        path = issue_files.pull_path(self.folder / "tracker", "1")
        return path if path.is_file() else None

    def task_folder(self, uuid: str) -> Path | None:
        """The folder of the demo's task, with the conversation; None if there is none."""
        return folder_of(self.settings, uuid)

    def calls(self, uuid: str) -> Iterator[Json]:
        """Every tool call of the demo's task, in order, as recorded in tools.jsonl."""
        folder = self.task_folder(uuid)
        if folder is not None:
            yield from (record for _, record in records(folder / "tools.jsonl"))

    def remove(self) -> None:
        """Remove the demo; a folder that existed before it stays, empty."""
        if self.made:
            filetree.remove(self.folder)
            return
        for path in self.folder.iterdir():
            filetree.remove(path)


LOCAL = {"GIT_ALLOW_PROTOCOL": "file"}


def is_listening(address: str) -> bool:
    """Whether a server listens at the address: one attempt to connect, of at most one second for http and five for
    https."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=1 if parts.scheme == "http" else 5):
            return True
    except OSError:
        return False


def preferred_model(listed: list[str], wanted: str) -> str:
    """The configured model if the server lists it or lists no models, else the listed model that most probably supports
    tools; "" if by their names none of the listed models can converse."""
    if not listed or any(same_model(wanted, one) for one in listed):
        return wanted
    talkers = [one for one in listed if not any(word in one.lower() for word in NO_TALKER)]
    for word in LIKED:
        found = [one for one in talkers if word in one.lower()]
        if found:
            return min(found)
    return ""


def window_is_known(settings: Settings, provider: str, model: str) -> bool:
    """Whether the window of the model comes from the configuration or from the list of known models, and is not merely
    the program's default."""
    _, source = configured_window(settings, provider, model)
    return not source.startswith("the default")


def text_of(done: Finished) -> str:
    """The output of a command's process as text."""
    return done.output.decode("utf-8", "replace").strip()

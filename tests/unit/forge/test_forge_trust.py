"""`ca_file` adds to whom everybody trusts, for the API and for git."""

from __future__ import annotations

import os
import ssl
import stat
import subprocess

import pytest
import requests.certs
from forges.git_http import served
from forges.gitlab_place import PROJECT, TOKEN, gitlab_settings
from forges.gitlab_server import GitLab
from forges.gitlab_state import DEVELOPER

from agent.errors import ConfigError, ForgeUnreachable, GitError
from agent.forge.ca_bundle import CaBundle
from agent.forge.gitlab.forge import GitLabForge
from agent.values import TaskKey
from agent.work.remote import Remote


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    """Two authorities, `public` and `private_kind`, and of each a certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words):
        done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True)
        assert done.returncode == 0, done.stderr

    for name in ("public", "private"):
        new = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
        openssl("req", "-x509", *new, "-subj", f"/CN={name} CA", "-keyout", f"{name}-ca.key", "-out", f"{name}-ca.pem")
        openssl("req", *new[:3], "-subj", "/CN=localhost", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (folder / "names").write_text("subjectAltName=DNS:localhost\n")
        signed = ("-CA", f"{name}-ca.pem", "-CAkey", f"{name}-ca.key", "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", "names", "-out", f"{name}.pem")
    return folder


@pytest.fixture
def hosts(authorities, tmp_path):
    """A GitLab with a repository for each authority."""
    made = {}
    repos = tmp_path / "repos"
    subprocess.run(["git", "init", "-q", "--bare", str(repos / f"{PROJECT}.git")], check=True)
    with served(tmp_path / "http", repos, {"oauth2": TOKEN}) as address:
        for name in ("public", "private"):
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(authorities / f"{name}.pem", authorities / f"{name}.key")
            server = made[name] = GitLab("/gitlab", tls=tls)
            server.git = address
            server.user("makimono", token=TOKEN, bot=True)
            server.project(PROJECT, members={"makimono": DEVELOPER})
        yield made
        for server in made.values():
            server.close()


def key(forge):
    owner, _, name = PROJECT.rpartition("/")
    return TaskKey("gitlab", owner, name, "issue", "1", forge.instance)


def ask(forge):
    """The API and git, once each."""
    assert forge.task_getter().get_task_list() == []
    repository = forge.repository(key(forge), None)
    Remote(repository.url, credentials=lambda: ("oauth2", TOKEN), ca_file=repository.ca_file).list()


def test_api_and_git_trust_the_systems_authorities_and_those_of_ca_file(hosts, authorities, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities / "public-ca.pem"))
    for server in hosts.values():
        forge = GitLabForge.from_settings(
            gitlab_settings(tmp_path, server.url, ca_file=authorities / "private-ca.pem")
        )[0]
        ask(forge)
        forge.close()


def test_a_variable_that_names_other_certificates_for_git_does_not_stand_above_ca_file(
    hosts, authorities, tmp_path, monkeypatch
):
    monkeypatch.setenv("GIT_SSL_CAINFO", str(authorities / "public-ca.pem"))
    forge = GitLabForge.from_settings(
        gitlab_settings(tmp_path, hosts["private"].url, ca_file=authorities / "private-ca.pem")
    )[0]
    ask(forge)
    forge.close()


def test_who_stands_in_neither_is_not_trusted(hosts, authorities, tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    forge = GitLabForge.from_settings(
        gitlab_settings(tmp_path, hosts["private"].url, ca_file=authorities / "public-ca.pem")
    )[0]
    with pytest.raises(ForgeUnreachable, match="set ca_file"):
        forge.task_getter().get_task_list()
    url = f"{hosts['private'].url}/{PROJECT}.git"
    with pytest.raises(GitError, match="certificate"):
        Remote(url, credentials=lambda: ("oauth2", TOKEN), ca_file=forge.wire.ca_file()).list()
    assert hosts["private"].journal == []
    forge.close()


def test_the_file_has_every_certificate_once_and_only_its_owner_reads_it(authorities, tmp_path):
    trust = CaBundle(tmp_path / "contexts", authorities / "private-ca.pem", environ={})
    text = trust.file().read_text()
    assert trust.path.parent == tmp_path / "contexts" / "trust"
    assert stat.S_IMODE(trust.path.stat().st_mode) == 0o600
    assert (authorities / "private-ca.pem").read_text().strip() in text
    with open(requests.certs.where()) as file:
        usual = file.read()
    last = usual.rindex("-----BEGIN CERTIFICATE-----")
    assert usual[last:].strip() in text
    blocks = text.split("-----BEGIN CERTIFICATE-----\n")[1:]
    assert len(blocks) == len(set(blocks)) > 100
    assert ssl.create_default_context(cafile=str(trust.path)).cert_store_stats()["x509_ca"] > 100


def test_what_the_environment_names_takes_the_place_of_the_systems_list(authorities, tmp_path):
    environ = {"SSL_CERT_FILE": str(authorities / "public-ca.pem")}
    trust = CaBundle(tmp_path, authorities / "private-ca.pem", environ)
    assert trust.file().read_text().count("BEGIN CERTIFICATE") == 2


def test_it_is_written_anew_only_when_a_source_changes(authorities, tmp_path):
    system, own = tmp_path / "system.pem", tmp_path / "own.pem"
    system.write_bytes((authorities / "public-ca.pem").read_bytes())
    own.write_bytes((authorities / "private-ca.pem").read_bytes())
    trust = CaBundle(tmp_path / "contexts", own, {"SSL_CERT_FILE": str(system)})
    first = trust.file().stat()
    assert trust.file().stat().st_ino == first.st_ino
    again = CaBundle(tmp_path / "contexts", own, {"SSL_CERT_FILE": str(system)})
    assert again.file().stat().st_ino == first.st_ino  # another process finds it as it has to be
    for source in (own, system):
        source.write_bytes(source.read_bytes() + (authorities / "public.pem").read_bytes())
        os.utime(source, ns=(1, 1))
        assert trust.file().read_text().count("BEGIN CERTIFICATE") == 3
        assert trust.path.stat().st_ino != first.st_ino
        first = trust.path.stat()
        source.write_bytes(source.read_bytes()[: -len((authorities / "public.pem").read_bytes())])
        assert trust.file().read_text().count("BEGIN CERTIFICATE") == 2
        first = trust.path.stat()


def test_a_ca_file_that_is_not_there_or_holds_nothing_is_said_by_its_name(tmp_path):
    with pytest.raises(ConfigError, match=r"ca_file .*none\.pem cannot be read: No such file"):
        CaBundle(tmp_path, tmp_path / "none.pem", {}).file()
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ConfigError, match="holds no certificate"):
        CaBundle(tmp_path, tmp_path / "key.pem", {}).file()

"""What libraries find by themselves in the environment is a declared secret, as if a key held it."""

import json
import os

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from agent.config import library_credentials, load
from agent.errors import ConfigError
from agent.security.redact import Redactor
from agent.security.secrets import scan
from agent.work.setup import prepare

AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYVERYOWNKEY"
AZURE = "dGhlLWtleS1vZi1hLXN0b3JhZ2UtYWNjb3VudC1vZi1henVyZQ=="


def secrets(tmp_path, **environ):
    return load(environ={"HOME": str(tmp_path), **environ}).secrets()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", library_credentials.VARIABLES)
def test_each_variable_that_a_library_reads_is_declared(tmp_path, name):
    assert AWS in secrets(tmp_path, **{name: AWS})


@pytest.mark.parametrize("name", ["FSSPEC_S3_SECRET", "FSSPEC_ABFS_ACCOUNT_KEY", "FSSPEC_SFTP_PASSWORD"])
def test_an_option_of_a_driver_is_declared(tmp_path, name):
    assert AWS in secrets(tmp_path, **{name: AWS})


def test_of_an_option_that_is_no_credential_nothing_is(tmp_path):
    assert secrets(tmp_path, FSSPEC_S3_ENDPOINT_URL="https://minio.example", AWS_REGION="eu-central-1") == ()
    assert secrets(tmp_path, FSSPEC_S3=json.dumps({"anon": False, "secret": AWS, "endpoint_url": "x" * 20})) == (AWS,)


def test_what_is_declared_is_masked_and_refused_in_every_form(tmp_path):
    known = secrets(tmp_path, AWS_SECRET_ACCESS_KEY=AWS, AWS_SESSION_TOKEN="IQoJb3JpZ2luX2VjEJr//token-of-a-session")
    mask = Redactor(known)
    assert mask(f"secret={AWS}; hex {AWS.encode().hex()}") == "secret=***; hex ***"
    diff = f"--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+key = '{AWS}'\n"
    assert scan([diff.encode()], known) == ["SE-01 a declared secret in a.py, line 1"]


def test_the_key_of_a_connection_string_is_declared_alone(tmp_path):
    text = f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={AZURE};EndpointSuffix=core.windows.net"
    known = secrets(tmp_path, AZURE_STORAGE_CONNECTION_STRING=text)
    assert AZURE in known
    assert "DefaultEndpointsProtocol=https" not in known
    signature = "sv=2022-11-02&ss=b&sig=abcdefghijklmnop%3D"
    assert "abcdefghijklmnop%3D" in secrets(tmp_path, AZURE_STORAGE_SAS_TOKEN=signature)


def test_the_private_key_of_googles_file_is_declared_line_by_line(tmp_path):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = key.private_bytes(*form).decode()
    account = {
        "type": "service_account",
        "client_email": "robot@acme.example",
        "private_key_id": "0123456789abcdef",
        "private_key": pem,
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    mask = Redactor(secrets(tmp_path, GOOGLE_APPLICATION_CREDENTIALS=str(file)))
    assert mask(pem.splitlines()[3]) == "***"
    masked = mask(file.read_text())
    assert pem.splitlines()[3] not in masked
    assert "robot@acme.example" in masked
    assert "https://oauth2.googleapis.com/token" in masked


def test_files_that_are_read_without_a_variable_are_declared_too(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key={AWS}\n"
    )
    (tmp_path / ".pgpass").write_text("# a comment:with:many:colons:here\ndb.example:5432:*:me:pass\\:word-of-pg\n")
    gcloud = tmp_path / ".config" / "gcloud"
    gcloud.mkdir(parents=True)
    login = {"client_id": "id", "client_secret": "d-FL95Q19q7MQmFpd7hHD0Ty", "refresh_token": "1//0g-refresh-of-me"}
    (gcloud / "application_default_credentials.json").write_text(json.dumps(login))
    known = secrets(tmp_path)
    assert set(known) == {AWS, "pass:word-of-pg", "d-FL95Q19q7MQmFpd7hHD0Ty", "1//0g-refresh-of-me"}


def test_a_token_that_is_a_whole_file_is_declared(tmp_path):
    file = tmp_path / "token"
    file.write_text("eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl\n")
    assert secrets(tmp_path, AWS_WEB_IDENTITY_TOKEN_FILE=str(file)) == ("eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl",)


@pytest.mark.parametrize("kind", ["none", "folder", "pipe", "large", "deep", "bytes"])
def test_a_file_that_is_none_declares_nothing_and_holds_up_nobody(tmp_path, kind):
    file = tmp_path / "file"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "large":
        file.write_text(f'{{"private_key": "{"k" * library_credentials.LARGEST}"}}')
    elif kind == "deep":
        file.write_text("[" * 100_000)
    elif kind == "bytes":
        file.write_bytes(bytes(range(256)))
    assert "k" * 100 not in "".join(secrets(tmp_path, GOOGLE_APPLICATION_CREDENTIALS=str(file)))


def test_a_set_up_gets_none_of_them(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "workspace: {setup: {command: 'true', env: {KEY: '${AWS_SECRET_ACCESS_KEY}'}}}\n"
    )
    settings = load(environ={"AWS_SECRET_ACCESS_KEY": AWS})
    with pytest.raises(ConfigError, match="KEY holds a declared secret"):
        prepare(settings, None, None, None, home=tmp_path, secrets=settings.secrets())

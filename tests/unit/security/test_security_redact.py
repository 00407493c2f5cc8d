"""A declared secret is masked however it was encoded."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.security.redact import Redactor

SECRET = 'tök/en+with "quotes" & more'
REDACT = Redactor([SECRET])


@pytest.mark.parametrize(
    "encoded",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps({"a": SECRET})),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").replace("%C3%B6", "%c3%b6").replace("%2F", "%2f").replace("%2B", "%2b"),
        quote(quote(SECRET, safe=""), safe=""),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
    ],
)
def test_a_secret_is_masked_in_each_encoding(encoded):
    masked = REDACT(f"before {encoded} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert "***" in masked
    assert "quotes" not in masked.replace("%22", "")


@settings(max_examples=60, deadline=None, database=None)
@given(before=st.binary(max_size=10), after=st.binary(max_size=10))
def test_base64_is_masked_wherever_the_secret_stands(before, after):
    secret = "glpat-0a1b2c3d4e5f6g7h8i9j"
    redact = Redactor([secret])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert "***" in redact(encode(before + secret.encode() + after).decode())


def test_a_long_secret_in_wrapped_base64_leaves_at_most_its_edges():
    secret = "".join(chr(33 + n % 90) for n in range(300))
    wrapped = base64.encodebytes(secret.encode()).decode()
    masked = Redactor([secret])(wrapped)
    assert len(masked.replace("***", "")) < 40


def test_each_long_line_of_a_key_file_is_masked_by_itself():
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    key = f"-----BEGIN PRIVATE KEY-----\n{line}\nshort\n-----END PRIVATE KEY-----\n"
    redact = Redactor([key])
    assert redact(f"+{line}\n") == "+***\n"
    assert redact("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"
    assert redact(json.dumps({"key": key.strip()})) == '{"key": "***"}'


def test_short_values_are_left_alone_and_longer_secrets_go_first():
    assert Redactor(["abc", ""])("abc abc") == "abc abc"
    assert Redactor(["password1", "password1-and-more"])("password1-and-more") == "***"


def test_bytes_are_masked_too():
    assert Redactor(["s3cr3t-value"]).bytes(b"\xff s3cr3t-value \x00") == b"\xff *** \x00"


def test_text_without_secrets_is_the_same_object():
    text = "nothing here"
    assert REDACT(text) is text

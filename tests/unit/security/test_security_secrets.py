"""The scan of what would be published."""

import subprocess

import pytest
from cpu_time import cpu_seconds

from agent.security.secrets import scan

TAIL = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def diff(*lines, path="src/app.py"):
    body = "".join(f"{line}\n" for line in lines)
    added = sum(line[:1] in "+ " for line in lines)
    removed = sum(line[:1] in "- " for line in lines)
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1,{removed} +1,{added} @@\n"
    return (head + body).encode()


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (f"ghp_{TAIL}", "GitHub token"),
        (f"ghs_{TAIL}", "GitHub token"),
        (f"github_pat_11ABCDEFG0{TAIL}", "GitHub token"),
        ("glpat-a1B2c3D4e5F6g7H8i9J0", "GitLab token"),
        (f"sk-proj-{TAIL}", "OpenAI key"),
        (f"sk-ant-api03-{TAIL}", "Anthropic key"),
        (f"sk-{TAIL}", "model provider key"),
        ("AKIAQ3EGRT5XZ7MNPQ2A", "AWS access key"),
        ("xoxb-123456789012-abcdefGHIJ", "Slack token"),
        (f"AIza{TAIL[:35]}", "Google API key"),
        (f"npm_{TAIL}", "npm token"),
        (f"hf_{TAIL[:34]}", "Hugging Face token"),
        (f"sk_live_{TAIL}", "Stripe key"),
    ],
)
def test_the_shape_of_a_token_in_an_added_line_is_found_and_its_value_not_told(token, name):
    found = scan([diff(" a", f'+KEY = "{token}"')])
    assert found == [f"SE-02 {name} in src/app.py, line 2"]


def test_what_a_change_removes_or_leaves_is_not_its_doing():
    assert scan([diff(f"-ghp_{TAIL}", f" ghp_{TAIL}", "+x")]) == []


def test_words_that_only_look_like_tokens_are_left_alone():
    lines = [
        "+task-sk-learn",
        "+ghp_" + "x" * 36,
        "+risk-abcdefghijklmnopqrstuvwxyz1234",
        "+sk-some-very-long-css-class-name-here",
    ]
    assert scan([diff(*lines)]) == []


def test_private_keys_are_found_and_programs_that_read_them_are_not():
    assert scan([diff("+-----BEGIN RSA PRIVATE KEY-----", "+MIIE")]) == ["SE-03 private key in src/app.py, line 1"]
    assert scan([diff('+K = "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0"')])
    assert scan([diff('+if "-----BEGIN PRIVATE KEY-----" in text:')]) == []


def test_a_declared_secret_is_found_plain_and_encoded():
    secret = "hunter2-hunter2"
    assert scan([diff(f"+x = '{secret}'")], [secret]) == ["SE-01 a declared secret in src/app.py, line 1"]
    assert scan([diff(f"+{secret.encode().hex()}")], [secret])
    assert scan([diff("+hunter2")], [secret]) == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_declared_secret_in_a_file_of_utf_16_is_found(encoding):
    text = diff("+key = MARK").partition(b"MARK")
    wide = "x = hunter2-hunter2".encode(encoding).replace(b"\n", b"")
    assert scan([text[0] + wide + text[2]], ["hunter2-hunter2"]) == ["SE-01 a declared secret in src/app.py, line 1"]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_chunks_may_be_cut_anywhere(size):
    data = diff(" a", f"+ghp_{TAIL}", path="a/ä b.txt")
    assert scan(data[at : at + size] for at in range(0, len(data), size)) == ["SE-02 GitHub token in a/ä b.txt, line 2"]


def test_a_token_in_a_line_of_megabytes_is_found_wherever_it_stands():
    token = f"ghp_{TAIL}".encode()
    for before in (65_500, 65_536 - 4096 - 10, 1 << 20):
        data = diff("+x").replace(b"+x\n", b"+" + b" " * before + token + b" " * 70_000 + b"\n")
        assert scan(data[at : at + 10_000] for at in range(0, len(data), 10_000)), before


def test_an_added_line_that_looks_like_a_header_is_an_added_line():
    data = diff("+++ b/ghp_" + TAIL, "+@@ -1 +1 @@", f"+sk-{TAIL}")
    assert scan([data]) == [
        "SE-02 GitHub token in src/app.py, line 1",
        "SE-02 model provider key in src/app.py, line 3",
    ]


def test_a_token_in_a_file_name_is_found():
    assert scan([f"diff --git a/x b/ghp_{TAIL}\nBinary files differ\n".encode()]) == [
        "SE-02 GitHub token in the change"
    ]


def test_findings_are_limited():
    found = scan([diff(*(f"+{n} ghp_{TAIL}" for n in range(80)))])
    assert len(found) == 51
    assert found[-1].startswith("and more")


def test_a_real_diff_of_git_is_understood(tmp_path):
    def git(*args):
        return subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path, *args], check=True, capture_output=True
        ).stdout

    git("init", "-q")
    (tmp_path / "f").write_text("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n")
    git("add", "f")
    git("commit", "-qm", "a")
    (tmp_path / "f").write_text(f"1\n2\n3\n4\n5\n6\n7\n8\n9\nghp_{TAIL}")
    (tmp_path / "ö x").write_text("\n\nAKIAQ3EGRT5XZ7MNPQ2A\n")
    git("add", "-A")
    assert scan([git("-c", "core.quotepath=false", "diff", "--cached")]) == [
        "SE-02 GitHub token in f, line 10",
        "SE-02 AWS access key in ö x, line 3",
    ]


@pytest.mark.parametrize(
    "key",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "AKIAI44QH8DHBEXAMPLE",
        "gho_" + "16C7e42F292c6912E7710c838347Ae178B4a",
        "ghs_" + "16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxb-17653672481-19874698323-" + "pdFZKVeTuE8sk7oOcBrzbqgy",
        "AIza" + "SyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "SG.ngeVfQFYQlKU0ufo8x5d1A." + "TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr",
        "sk-proj-your-api-key-goes-in-here-1234",
        "ghp_EXAMPLEtokenEXAMPLEtokenEXAMPLEtoken",
    ],
)
def test_an_example_of_the_vendors_documents_is_no_secret(key):
    diff = f"diff --git a/t.py b/t.py\n--- a/t.py\n+++ b/t.py\n@@ -0,0 +1 @@\n+key = '{key}'\n".encode()
    assert scan([diff]) == []


def test_a_key_that_differs_from_an_example_in_one_sign_is_one():
    for key in ("AKIAIOSFODNN7EXAMPLF", "gho_" + "16C7e42F292c6912E7710c838347Ae178B4b"):
        diff = f"diff --git a/t.py b/t.py\n--- a/t.py\n+++ b/t.py\n@@ -0,0 +1 @@\n+key = '{key}'\n".encode()
        assert len(scan([diff])) == 1


@pytest.mark.parametrize("size", [1, 50, 1 << 10, 1 << 16])
def test_a_line_is_found_with_its_number_behind_lines_that_are_passed_over(size):
    """Blocks of added lines without a hint are counted as a whole."""
    lines = [
        b"+x\n" * 900,
        b"+y " * 40_000 + b"\n",
        b"+x\n" * 900,
        b"+" + TAIL.encode() + b" ghp_" + TAIL.encode() + b"\n",
    ]
    added = b"".join(lines)
    count = added.count(b"\n")
    head = b"--- a/f\n+++ b/f\n@@ -1,2 +1,%d @@\n-old\n-older\n\\ No newline at end of file\n" % count
    tail = b"\\ No newline at end of file\n--- a/g\n+++ b/g\n@@ -0,0 +1 @@\n+ghp_" + TAIL.encode() + b"\n"
    whole = head + added + tail
    found = scan(whole[at : at + size] for at in range(0, len(whole), size))
    assert found == [f"SE-02 GitHub token in f, line {count}", "SE-02 GitHub token in g, line 1"]


def test_zeros_take_no_longer_with_many_declared_secrets():
    """300 MB of zeros in a work tree took minutes: each form of each secret was searched in them."""
    data = diff("+x").replace(b"+x\n", b"+" + b"\0" * (4 << 20) + b"\n")

    def seconds(secrets):
        return cpu_seconds(scan, [data], secrets)

    assert scan([data], []) == []
    least = [min(seconds(secrets) for _ in range(3)) for secrets in ([], [f"secret-{n}-of-{TAIL}" for n in range(12)])]
    assert least[1] - least[0] < 10 * max(0.01, least[0])

"""Texts that every installation has but this repository does not: the sample for measuring the token estimate.

`classes(seed)` returns class → documents of 200 to 12,000 characters: sources of the standard library, documentation of
installed packages in English and (if the system has some) in Japanese, JSON, changes of a git history, logs and
listings, base64 and hexadecimal digits.  The same seed gives the same sample on the same machine.
"""

import base64
import hashlib
import html
import importlib.metadata
import json
import random
import re
import subprocess
import sysconfig
import uuid
from pathlib import Path

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
PACKAGES = Path(sysconfig.get_paths()["purelib"])
ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = 60  # per class
LENGTHS = (200, 600, 1500, 4000, 12_000)
KANA = re.compile(r"[\u3041-\u30ff]")

JAPANESE_DOCS = (
    "/usr/share/vim/vim*/tutor/tutor.ja.utf-8",
    "/usr/share/vim/vim*/tutor/tutor1.ja.utf-8",
    "/usr/share/gnupg/help.ja.txt",
    "/usr/share/doc/*/README.ja*",
    "/usr/share/doc/*/*.ja.txt",
)
OWN_JAPANESE = (
    "このプログラムは、課題管理の仕組みに登録された作業をひとつずつ受け取り、作業用の枝を作って変更を加え、確認を済ませて"
    "から取り込みの依頼を出します。途中で電源が落ちても、次に起動したときは記録をたどって同じところから再開します。\n"
    "料金の計算では、まず商品の値段を合計し、そのあとで端数を処理します。順番を逆にすると、数円の違いが積み重なって、月末の"
    "集計が合わなくなります。テストを先に直し、次に関数を直してください。\n"
    "昨日の会議では、三つの案が出ました。ひとつめは古い機能をそのまま残す案、ふたつめは設定で切り替えられるようにする案、"
    "みっつめは思い切って取り除く案です。利用者の意見を聞いたところ、ほとんどの人がふたつめを選びました。\n"
    "エラーメッセージには、どのファイルの何行目で、何が見つかり、何が許されているかを必ず書きます。読む人は急いでいるので、"
    "次に何をすればよいかが一目で分かるようにしましょう。サーバーに接続できない場合は、ネットワークの設定を確認します。\n"
)
"""Only where the system has no Japanese documentation at all."""


def read(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def out(*command):
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def japanese_sources():
    """(source, text) of Japanese prose on this system."""
    found = [(path, read(path)) for one in JAPANESE_DOCS for path in sorted(Path("/").glob(one[1:]))]
    for folder in sorted(Path.home().glob(".rustup/toolchains/*/share/doc/rust/html/rust-by-example/ja"))[:1]:
        for path in sorted(folder.rglob("*.html"))[:80]:
            body = read(path).partition("<main>")[2].partition("</main>")[0]
            found.append((path, re.sub(r"\n\s*\n+", "\n\n", html.unescape(re.sub(r"<[^>]+>", "", body)))))
    found = [(path, text) for path, text in found if len(KANA.findall(text)) > 200]
    return found or [("tests/installed_texts.py", OWN_JAPANESE)]


def prose():
    texts = [read(path).partition("\n\n")[2] for path in sorted(PACKAGES.glob("*.dist-info/METADATA"))]
    texts += [read(path) for path in sorted(PACKAGES.glob("*.dist-info/licenses/LICENSE*"))]
    texts += [read(path) for path in sorted(Path("/usr/share/common-licenses").glob("*"))]
    return texts


def jsons():
    # Tables of character sets are lists of rare characters, which tools do not return.
    paths = [path for path in sorted(PACKAGES.glob("**/*.json")) if "iconv" not in str(path)]
    texts = [read(path) for path in paths if path.stat().st_size < 2_000_000]
    found = [dict(one.metadata.json) for one in importlib.metadata.distributions()]
    for one in found:
        one.pop("description", None)
    stats = [
        {"path": str(path.relative_to(LIBRARY)), "size": path.stat().st_size, "mtime": path.stat().st_mtime}
        for path in sorted(LIBRARY.glob("*.py"))
    ]
    texts += [json.dumps(found, indent=2), json.dumps(found), json.dumps(stats), json.dumps(stats, indent=1)]
    return texts


def diffs():
    texts = out("git", "log", "-p", "-n", "40", "--no-color").split("\ncommit ")
    if len(texts) < 5:
        import difflib

        sources = [read(path).splitlines(keepends=True) for path in sorted(LIBRARY.glob("json/*.py"))]
        texts = ["".join(difflib.unified_diff(a, b)) for a in sources for b in sources if a is not b]
    return texts


def logs():
    texts = [read(path)[-200_000:] for path in sorted(Path("/var/log").glob("**/*.log"))]
    texts += [out("ls", "-l", str(LIBRARY)), out("ls", "-la", str(PACKAGES)), out("ls", "-lR", str(LIBRARY / "email"))]
    texts += [out("git", "log", "--stat", "-n", "40", "--no-color"), out("dpkg", "-l")]
    return texts


def digests(kind):
    rng = random.Random(4)
    data = b"".join(path.read_bytes() for path in sorted(LIBRARY.glob("__pycache__/*.pyc"))[:40])
    if kind == "base64":
        return [base64.encodebytes(data[:200_000]).decode(), base64.b64encode(data[200_000:400_000]).decode()]
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() + f"  {path.name}" for path in sorted(LIBRARY.glob("*.py"))]
    return [
        data[:100_000].hex(),
        "\n".join(sums),
        "\n".join(line.split()[0] for line in sums),
        "\n".join(str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(1000)),
    ]


def classes(seed=7):
    """class → documents."""
    sources = {
        "English prose": prose(),
        "Python": [read(path) for path in sorted(LIBRARY.glob("*.py")) + sorted(LIBRARY.glob("*/*.py"))],
        "Japanese": [text for _, text in japanese_sources()],
        "JSON": jsons(),
        "diffs": diffs(),
        "logs, listings": logs(),
        "base64": digests("base64"),
        "hex, uuid": digests("hex"),
    }
    drawn = {}
    for name, texts in sources.items():
        rng = random.Random(f"{seed} {name}")
        usable = [text for text in texts if len(text) >= LENGTHS[0]]
        drawn[name] = [piece(rng.choice(usable), rng) for _ in range(DOCUMENTS)]
    return drawn


def piece(text, rng):
    """A part of a text, starting at a line start if there is one."""
    length = min(len(text), rng.choice(LENGTHS))
    start = rng.randrange(len(text) - length + 1)
    start = text.rfind("\n", 0, start) + 1 if "\n" in text[:start][-2000:] else start
    return text[start : start + length]


def report(model="gpt-4o", seed=7, draws=300):
    """class → (sum of the true tokens, signed error of the sum, worst under-estimate of one document), and the errors
    of sums of 30 mixed messages."""
    from agent.tokens import counter_for

    exact, estimate = counter_for(model), counter_for(model, prefer="bytes")
    pairs = {
        name: [(exact.count(text), estimate.count(text)) for text in texts] for name, texts in classes(seed).items()
    }
    rows = {}
    for name, counts in pairs.items():
        true = sum(a for a, _ in counts)
        rows[name] = (true, sum(b for _, b in counts) / true - 1, min(b / a - 1 for a, b in counts))
    rng = random.Random(seed)
    names = list(pairs)
    mixed = []
    for _ in range(draws):
        chosen = [rng.choice(pairs[rng.choice(names)]) for _ in range(30)]
        mixed.append(sum(b for _, b in chosen) / sum(a for a, _ in chosen) - 1)
    return rows, sorted(mixed)

"""How far the estimate is from tiktoken on files that every installation has (tokens.md section 7; seed 000: ±10 %)."""

import base64
import hashlib
import json
import random
import sysconfig
from pathlib import Path

import pytest

from agent.tokens import counter_for

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
PACKAGES = Path(sysconfig.get_paths()["purelib"])
JAPANESE = (
    "このプログラムは、会話の履歴をファイルに保存し、必要になったときだけ読み込みます。要約は古いメッセージから順に作成され、"
    "トークンの上限を超えないように管理されます。エラーが発生した場合は、利用者に通知してください。\n"
)


def cut(text, length, rng):
    start = rng.randrange(max(1, len(text) - length))
    return text[start : start + length]


def documents():
    rng = random.Random(7)
    texts = [
        path.read_text(encoding="utf-8", errors="replace")
        for name in ("textwrap", "json/decoder", "argparse", "http/client", "csv", "heapq")
        for path in [LIBRARY / f"{name}.py"]
    ]
    texts += [path.read_text(errors="replace") for path in sorted(PACKAGES.glob("*.dist-info/METADATA"))[:8]]
    texts.append(json.dumps([{"id": n, "name": f"item {n}", "ok": n % 2 == 0} for n in range(300)], indent=1))
    texts.append(JAPANESE * 30)
    texts.append("".join(f"-old line {n}\n+new line {n}\n context line\n" for n in range(300)))
    texts.append(base64.b64encode(b"".join(hashlib.sha256(bytes([n])).digest() for n in range(150))).decode())
    return [cut(text, rng.choice([400, 1500, 4000, 9000]), rng) for text in texts for _ in range(3)]


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4"])
def test_the_sum_of_thirty_mixed_messages_is_within_ten_percent(model):
    exact, estimate = counter_for(model), counter_for(model, prefer="bytes")
    counts = [(exact.count(text), estimate.count(text)) for text in documents()]
    rng = random.Random(1)
    for _ in range(100):
        drawn = rng.sample(counts, 30)
        assert sum(b for _, b in drawn) == pytest.approx(sum(a for a, _ in drawn), rel=0.10)


def test_case_27_japanese_is_not_counted_by_four_characters():
    exact, estimate = counter_for("gpt-4o"), counter_for("gpt-4o", prefer="bytes")
    text = JAPANESE * 20
    assert estimate.count(text) == pytest.approx(exact.count(text), rel=0.12)
    assert len(text) // 4 < 0.6 * exact.count(text)

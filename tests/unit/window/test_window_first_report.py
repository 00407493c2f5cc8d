"""A model of unknown vocabulary: what one report of its server makes of the estimate.

The server here counts with a vocabulary of its own, which is that of another model.
"""

import pytest

from agent.tokens import PRIMING, MemoryRatios, count_message, counter_for
from agent.values import Answer, Usage

BAND = 0.15

MIXES = {
    "english and code": (
        "The invoice total is wrong by a few cents when the discount is applied before rounding.\n",
        "def total(prices, discount):\n    return round(sum(prices) * (1 - discount), 2)\n",
        "If the server cannot be reached, say which address was tried, wait a little and try again.\n",
        "class Retry:\n    def __init__(self, times: int = 3) -> None:\n        self.times = times\n",
    ),
    "numbers": (
        "184223.15,-0.0032,1764416000,99.871\n",
        "77.25,1204.5,-31.0007,1764419999\n",
        "0.5,6612.75,98.31,1764500001\n",
        "3310.2,-8.125,40.04,1764512345\n",
    ),
    "russian": (
        "Сначала добавьте тест, потом исправьте функцию и проверьте сумму счёта.\n",
        "Если сервер недоступен, программа должна сообщить адрес и повторить попытку.\n",
        "Вчера мы обсуждали три предложения, и большинство выбрало второе.\n",
        "Каждая ошибка называет файл, строку и то, что там разрешено.\n",
    ),
    "hindi": (
        "पहले एक परीक्षण जोड़ें, फिर फलन बदलें और बिल का कुल योग देखें।\n",
        "यदि सर्वर से संपर्क नहीं हो सके, तो प्रोग्राम को पता बताना चाहिए।\n",
        "कल हमने तीन प्रस्तावों पर चर्चा की और अधिकतर लोगों ने दूसरा पसंद किया।\n",
        "हर त्रुटि संदेश में फ़ाइल और पंक्ति का नाम होना चाहिए।\n",
    ),
    "thai": (
        "ให้เพิ่มการทดสอบก่อน แล้วจึงแก้ไขฟังก์ชัน\n",
        "ถ้าเชื่อมต่อกับเซิร์ฟเวอร์ไม่ได้ โปรแกรมควรบอกที่อยู่\n",
        "เมื่อวานนี้เราได้พูดคุยกันถึงข้อเสนอสามข้อ\n",
        "ข้อความแสดงข้อผิดพลาดต้องบอกชื่อไฟล์และบรรทัด\n",
    ),
    "japanese": (
        "先にテストを追加し、それから関数を直して、請求書の合計を確かめてください。\n",
        "サーバーに接続できない場合は、どの宛先を試したのかを表示します。\n",
        "昨日は三つの案について話し合い、ほとんどの人が二番目の案を選びました。\n",
        "エラーにはファイル名と行番号、そして許される値を必ず書きます。\n",
    ),
}
MIXES["all of them"] = tuple("".join(part) for part in zip(*MIXES.values(), strict=True))
"""Four different texts of each kind: two for the first request, two behind it, all for another task."""

SERVERS = ("gpt-4o", "gpt-4", "qwen3", "deepseek-chat", "devstral")
"""Whose vocabulary the server has."""


@pytest.fixture(params=SERVERS)
def server(request):
    counter = counter_for(request.param)
    if not counter.exact:
        pytest.skip("its tokenizer is not installed")
    return lambda task: sum(count_message(counter, one) for one in task.view()) + PRIMING


def report(task, prompt):
    """The server answers the request that was planned."""
    task.writer.last = Answer("Seen.", (), "stop", Usage(prompt, 4))
    task.store.add_message("assistant", "Seen.", usage=Usage(prompt, 4))


@pytest.mark.parametrize("mix", MIXES)
def test_behind_one_report_the_next_request_of_the_same_mix_is_within_fifteen_percent(new_task, server, mix):
    first, second, third, fourth = MIXES[mix]
    ratios = MemoryRatios()
    task = new_task(context_length=200_000, ratios=ratios).begin(system=first * 10, task=second * 10)
    task.window.plan()
    report(task, server(task))
    task.store.add_message("user", (third + fourth) * 15)
    assert task.window.plan().tokens == pytest.approx(server(task), rel=BAND)
    assert ratios.reports("phi4") == 1
    other = new_task(context_length=200_000, ratios=ratios).begin(
        system=(first + third) * 5, task=(second + fourth) * 5
    )
    assert other.window.plan().tokens == pytest.approx(server(other), rel=BAND)


def test_without_a_report_some_of_them_are_further_off(new_task):
    counter = counter_for("gpt-4")
    task = new_task(context_length=200_000).begin(system=MIXES["thai"][0] * 10, task=MIXES["thai"][1] * 10)
    true = sum(count_message(counter, one) for one in task.view())
    assert task.window.plan().tokens < 0.6 * true


@pytest.mark.parametrize("share", [0.8, 1.2])
def test_a_ratio_below_1_is_not_relied_upon_for_text_that_no_report_has_counted(new_task, share):
    """The ratio was learnt from other text.  A turn of many results, the first behind it, did not fit."""
    task = new_task(context_length=8192, ratios=MemoryRatios()).begin(system="Work. " * 100, task="Go home. " * 200)
    estimated = task.window.plan().tokens
    report(task, round(share * estimated))
    task.store.add_message("user", "Go on.")
    task.window.plan()  # the report is learnt from
    text = "result = total(prices, discount)\n" * 150
    before, stated = task.window.assembler.tokens_in_use(), task.window.assembler.stated
    task.store.add_message("user", text)
    new, used, limits = (
        task.window.assembler.plain.count(text),
        task.window.assembler.tokens_in_use(),
        task.window.limits,
    )
    assert used - before == pytest.approx(share * new, rel=0.05)
    bound = used + max(0.0, new * (1 - share))  # without what the ratio takes off
    assert limits.input_limit == pytest.approx(stated.input_limit * used / bound, rel=0.01)
    assert limits.input_limit <= stated.input_limit
    assert (limits.most, limits.output) == (stated.most, stated.output)

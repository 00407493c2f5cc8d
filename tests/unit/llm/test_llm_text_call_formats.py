"""Calls that a server's parser left in the text: read by structure when the whole answer is calls, else left alone."""

import json
import re

import pytest
from cpu_time import cpu_seconds
from hypothesis import given, settings
from hypothesis import strategies as st
from length import either
from worst_inputs import at_most

from agent.llm import text_call_formats
from agent.llm.inline_reasoning import split_thoughts
from agent.llm.text_call_formats import ends_in_calls, whole_calls

OFFERED = frozenset(("read_file", "edit_file", "finish"))
CALL = ("read_file", {"path": "a.py"})
JSON = json.dumps({"name": "read_file", "arguments": {"path": "a.py"}})

# What models write, as their own templates and public reports have it.
WHOLE = {
    "Hermes, Qwen: ollama/ollama#11185": f"<tool_call>\n{JSON}\n</tool_call>",
    "bare JSON: jonigl/mcp-client-for-ollama#61": JSON,
    "in a fence": f"```json\n{JSON}\n```",
    "pretty": json.dumps(json.loads(JSON), indent=2),
    "Qwen3-Coder": "<tool_call>\n<function=read_file>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>",
    "Qwen3-Coder, half": "<function=read_file>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>",
    "Mistral": f"[TOOL_CALLS][{JSON}]",
    "Mistral, newer": '[TOOL_CALLS]read_file[ARGS]{"path": "a.py"}',
    "Llama 3.1": '<|python_tag|>{"name": "read_file", "parameters": {"path": "a.py"}}<|eom_id|>',
    "Llama 3.1, own functions": '<function=read_file>{"path": "a.py"}</function>',
    "Llama 4, LFM: ggml-org/llama.cpp#23838": "<|tool_call_start|>[read_file(path='a.py')]<|tool_call_end|>",
    "DeepSeek R1": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n"
        '```json\n{"path": "a.py"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "DeepSeek V3.1": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{"path": "a.py"}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "DeepSeek V3.2": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read_file">\n<｜DSML｜parameter name="path" string="true">a.py'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
    "Claude, MiniMax": (
        '<minimax:tool_call>\n<invoke name="read_file">\n<parameter name="path">a.py</parameter>\n</invoke>\n'
        "</minimax:tool_call>"
    ),
    "Kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>"
        '{"path": "a.py"}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "gpt-oss": '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path":"a.py"}<|call|>',
    "GLM": "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>",
    "Granite": f"<|tool_call|>[{JSON}]",
    "Phi": f"functools[{JSON}]",
    "OpenAI's own message": json.dumps(
        {"tool_calls": [{"id": "1", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}]}
    ),
    "gpt-oss, the address first": (
        '<|start|>assistant to=functions.read_file<|channel|>commentary json<|message|>{"path":"a.py"}<|call|>'
    ),
    "gpt-oss, with reasoning": (
        "<|channel|>analysis<|message|>Look first.<|end|><|start|>assistant<|channel|>commentary to=functions.read_file "
        '<|constrain|>json<|message|>{"path":"a.py"}<|call|>'
    ),
    "Gemma": "```tool_code\nprint(default_api.read_file(path='a.py'))\n```",
    "OLMo": '<function_calls>\nread_file(path="a.py")\n</function_calls>',
    "ReAct": 'Action: read_file\nAction Input: {"path": "a.py"}',
    "Command R": 'Action: ```json\n[{"tool_name": "read_file", "parameters": {"path": "a.py"}}]\n```',
    "Functionary": '>>>read_file\n{"path": "a.py"}',
    "LangChain's keys": '{"action": "read_file", "action_input": {"path": "a.py"}}',
    "keys that nobody listed": '{"id": 1, "use": "read_file", "with": {"path": "a.py"}}',
    "Apertus": '<|tools_prefix|>[{"read_file": {"path": "a.py"}}]<|tools_suffix|>',
    "Nemotron": f"<TOOLCALL>[{JSON}]</TOOLCALL>",
    "LongCat": f"<longcat_tool_call>{JSON}</longcat_tool_call>",
    "an end in the text": f"{JSON}</s>",
    "written as Python does": "<tool_call>\n{'name': 'read_file', 'arguments': {'path': 'a.py'}}\n</tool_call>",
    "the tool's name as a tag: Cline": "<read_file>\n<path>a.py</path>\n</read_file>",
    "a form that nobody listed": f"<|begin_action|>{JSON}<|end_action|>",
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_that_is_nothing_but_a_call_is_read(name):
    for text in (WHOLE[name], f"\n {WHOLE[name]}\n\n"):
        assert whole_calls(split_thoughts(text)[0], OFFERED) == [CALL]  # as a client does


@pytest.mark.parametrize("name", WHOLE)
def test_prose_around_it_or_a_tool_that_is_not_offered_makes_it_text(name):
    text = WHOLE[name]
    assert whole_calls(f"I will look: {text}", OFFERED) is None
    assert whole_calls(f"{text}\nDone with that.", OFFERED) is None
    assert whole_calls(text, {"edit_file"}) is None
    assert whole_calls(text[: len(text) // 2], OFFERED) is None


def test_calls_behind_words_are_seen_and_not_run():
    block = f"<tool_call>\n{JSON}\n</tool_call>"
    assert ends_in_calls(f"I look at it first.\n\n{block}", OFFERED)
    assert ends_in_calls("I look.\n<function=read_file>\n<parameter=path>\na.py\n</parameter>\n</function>", OFFERED)
    assert not ends_in_calls(f"A model writes {block} for that.", OFFERED)
    assert not ends_in_calls(f"For example:\n```json\n{JSON}\n```", OFFERED)
    assert not ends_in_calls(f"I look.\n{block}", {"edit_file"})


def test_several_calls_keep_their_order():
    two = [("read_file", {"path": "b"}), ("finish", {"title": "t"})]
    blocks = "\n".join(f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>" for n, a in two)
    assert whole_calls(blocks, OFFERED) == two
    assert whole_calls(json.dumps([{"name": n, "arguments": a} for n, a in two]), OFFERED) == two


@pytest.mark.parametrize(
    "text",
    [
        "",
        "finish",
        "read_file",
        "<tool_call>finish</tool_call>",
        '{"name": "finish"}',
        '{"path": "a.py"}',
        "[1, 2]",
        "```python\nprint(1)\n```",
        '```json\n{"a": 1}\n```',
        '[read_file(path=open("/etc/passwd"))]',
        '[read_file("a.py")]',
        '{"name": "read_file", "arguments": "a.py"}',
        "[" * 5000,
        '{"a":' * 3000,
    ],
)
def test_what_is_no_call_stays_text(text):
    assert whole_calls(text, OFFERED) is None


def test_line_ends_quotes_and_tags_inside_arguments_stay_as_they_are():
    arguments = {"path": "a.html", "old_text": 'x = "<b>"\n\t</b>', "new_text": "</tool_call>\n```\n{"}
    text = f"<tool_call>\n{json.dumps({'name': 'edit_file', 'arguments': arguments})}\n</tool_call>"
    assert whole_calls(text, OFFERED) == [("edit_file", arguments)]
    raw = '{"name": "edit_file", "arguments": {"new_text": "one\ntwo"}}'
    assert whole_calls(raw, OFFERED) == [("edit_file", {"new_text": "one\ntwo"})]
    code = "<function=edit_file>\n<parameter=new_text>\n  if a < b:\n    x()\n</parameter>\n</function>"
    assert whole_calls(code, OFFERED) == [("edit_file", {"new_text": "  if a < b:\n    x()"})]


@given(st.text(alphabet="<>|{}[]\"':,=/`\n abcread_filetool_call", max_size=80))
@settings(max_examples=either(37, 150), deadline=None)
def test_no_text_raises(text):
    whole_calls(text, OFFERED)


OLD = {  # what an element was, each as one pattern that looks for its end from every place
    form: re.compile(pattern, re.DOTALL)
    for form, pattern in (
        (text_call_formats.FUNCTION, r"<function=(?P<name>[\w.-]+)>(?P<inner>.*?)</function>"),
        (text_call_formats.PARAMETER, r"<parameter=(?P<name>[\w.-]+)>(?P<inner>.*?)</parameter>"),
        (
            text_call_formats.INVOKE,
            r"<(?P<p>(?:[\w.-]+:|｜?DSML｜)?)invoke name=\"(?P<name>[\w.-]+)\">(?P<inner>.*?)</(?P=p)invoke>",
        ),
        (
            text_call_formats.INVOKED,
            r"<(?P<p>(?:[\w.-]+:|｜?DSML｜)?)parameter name=\"(?P<name>[\w.-]+)\"[^<>]*>(?P<inner>.*?)</(?P=p)parameter>",
        ),
        (text_call_formats.TAG, r"<(?P<name>[\w-]+)>(?P<inner>.*?)</(?P=name)>"),
    )
}
PIECES = ["<function=a>", "</function>", "<parameter=b.c>", "</parameter>", '<x:invoke name="a">', "</x:invoke>"]
PIECES += [
    '<invoke name="a">',
    "</invoke>",
    '<parameter name="b" c>',
    "</x:parameter>",
    "<a>",
    "</a>",
    "<b-1>",
    "</b-1>",
]
PIECES += ["<", ">", "x", "\n", " "]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@settings(max_examples=either(75, 300), deadline=None)
def test_an_element_is_what_its_pattern_found(text):
    for form, pattern in OLD.items():
        for at in range(len(text)):
            old = pattern.match(text, at)
            assert text_call_formats._element(text, at, *form) == (old and (old["name"], old["inner"], old.end()))


KEYS = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "a", " ", "\n"]
PAIR = re.compile(r"<arg_key>(?P<name>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL)


@given(st.lists(st.sampled_from(KEYS), max_size=10).map("".join))
@settings(max_examples=either(75, 300), deadline=None)
def test_a_pair_is_what_its_pattern_found_and_no_key_holds_the_tag_that_ends_it(text):
    old = PAIR.match(text)
    expected = (old["name"], old["value"], old.end()) if old and "</arg_key>" not in old["name"] else None
    assert text_call_formats._pair(text, 0) == expected


@pytest.mark.parametrize(
    "piece",
    [
        "<a>",
        "<function=read_file>",
        "<tool_call>",
        "<read_file><path>",
        '<invoke name="read_file">',
        "</arg_key> <arg_value>",
        "<arg_key>a</arg_key> <arg_value>",
        "<a:",
        "```\n",
        "<|a|> <tool_",
        '<tool_call>{"name": "read_file", "arguments": {"path": "',
        "read_file(path='",
        "[[",
        "to=",
        " ",
    ],
)
@pytest.mark.parametrize("front", ["", "<tool_call>read_file\n<arg_key>", "<read_file>", "<function=read_file>"])
def test_what_nothing_closes_is_read_in_linear_time(front, piece):
    def least(size):
        text = front + piece * (size // len(piece))
        return min(sum(cpu_seconds(one, text, OFFERED) for one in (whole_calls, ends_in_calls)) for _ in range(3))

    with at_most(20):
        small, large = least(1 << 15), least(1 << 17)
    assert large < max(10 * small, 0.005)

"""The environment of templates of people: the same texts as the program's own, and limits that hold before memory is used."""

import time
import tracemalloc
from functools import cache

import pytest
from jinja2.exceptions import SecurityError, TemplateError

from agent import prompts
from agent.prompts import limited_environment, rendering
from agent.prompts.limited_environment import CONTEXT_LIMIT, OUTPUT_LIMIT, SECONDS, LimitedEnvironment, LimitExceeded
from agent.prompts.sample_values import SAMPLES

ENVIRONMENTS = {published: LimitedEnvironment(published=published) for published in (False, True)}


@cache
def compiled(text, published):
    return ENVIRONMENTS[published].from_string(text)


def fill(text, /, published=False, **values):
    return limited_environment.fill(compiled(text, published), values)


def words(text):
    return text.replace("t", "T")


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_programs_own_templates_give_the_same_text_in_it(name):
    for sample in SAMPLES[name]:
        assert fill(rendering.source(name), **sample) == prompts.render(name, **sample)
        published = fill(rendering.source(name), published=True, **sample, **{rendering.WORDS: words})
        assert published == prompts.publish(name, words, **sample)


DOUBLED = "{% set x = 'aaaaaaaaaaaaaaaa' %}"
BOMBS = {
    "product": "{{ 'a' * 10 ** 8 }}",
    "product from the left": "{{ 10 ** 8 * 'a' }}",
    "list product": "{{ ([1] * 10 ** 5) * 10 ** 5 }}",
    "concatenation": DOUBLED + "{% set x = x ~ x %}" * 40 + "{{ x }}",
    "sum": DOUBLED + "{% set x = x + x %}" * 40 + "{{ x }}",
    "containers": "{% set x = [1] %}" + "{% set x = [x, x] %}" * 40 + "{{ x }}",
    "mappings": "{% set x = 1 %}" + "{% set x = {1: x, 2: x} %}" * 40 + "{{ x }}",
    "blocks": DOUBLED + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40 + "{{ x }}",
    "loops": "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}",
    "loops with a condition": "{% set r = range(10000) %}" + "{% for i in r if false %}{% endfor %}" * 1200,
    "constant text": "{% for i in range(10000) %}" + "y" * 60_000 + "{% endfor %}",
    "constant text in a block": "{% set z %}{% for i in range(10000) %}" + "y" * 60_000 + "{% endfor %}{% endset %}",
    "macros": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "arguments": "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "power": "{{ 2 ** (10 ** 9) }}",
    "numbers": "{{ 10 ** 18 * 10 ** 18 * 10 ** 18 }}",
    "format": "{{ '%1000000000d' % 1 }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format star": "{{ '%*d' | format(1000000000, 1) }}",
    "replace": "{{ 'a' | replace('a', 'b' * 500000) | replace('b', 'c' * 500000) }}",
    "join": "{{ ('a,' * 50000).split(',') | join('b' * 50000) }}",
    "map": "{{ [1, 1] | map('replace', '1', '2' * 400000) | join | replace('2', '33') }}",
    "indent": "{{ 'a' | indent(10 ** 9) }}",
    "round": "{{ 5 | round(-10 ** 9) }}",
    "round up": "{{ 1 | round(10 ** 9, 'ceil') }}",
    "round by name": "{{ [1] | map('round', precision=10 ** 9, method='floor') | list }}",
    "JSON": "{{ {'a': {'b': 1}} | tojson(indent=10 ** 9) }}",
    "deep JSON": "{% set x = range(9000) | list %}" + "{% set x = [x] %}" * 300 + "{{ x | tojson(100) }}",
    "a range": "{{ range(10 ** 9) }}",
    "the output": "{% for i in range(9000) %}{{ 'a' * 100 }}{% endfor %}",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_template_that_grows_is_ended_before_the_memory_is_used(text):
    started = time.thread_time()
    tracemalloc.start()
    try:
        with pytest.raises((LimitExceeded, RecursionError)):
            fill(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    assert time.thread_time() - started < SECONDS + 10  # tracemalloc slows one step down


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__'] }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ 'a'.ljust(9) }}",
        "{{ (1).to_bytes(9) }}",
        "{{ range.__globals__ }}",
        "{{ self.__init__ }}",
        "{% for i in [1] %}{{ loop.__init__ }}{% endfor %}",
        "{{ 'a' | attr('upper') }}",
        "{{ 'a' | center(9) }}",
        "{{ lipsum() }}",
        "{{ namespace(a=1) }}",
        "{{ given.update({'a': 1}) }}",
        "{{ thing.run() }}",
        "{{ environment }}",
        "{{ _words }}",
    ],
)
def test_what_is_not_listed_does_not_exist(text):
    class Thing:
        def run(self):
            raise AssertionError("a template called it")

    with pytest.raises(TemplateError):
        fill(text, given={}, thing=Thing())
    assert issubclass(SecurityError, TemplateError)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{{ 'abc'[::-1] ~ 5 }}", "cba5"),
        ("{{ '%(y)s' | format(y=5) }} {{ '%5.2f%%' % 3.1 }}", "5  3.10%"),
        ("{% for i in range(3) %}{{ loop.cycle('a', 'b') }}{{ loop.index }}{% endfor %}", "a1b2a3"),
        ("{% for k, v in given.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"),
        ("{{ [3, 1, 2] | sort | join(', ') }}", "1, 2, 3"),
        ("{{ ['a'] | map('upper') | join }}", "A"),
        ("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m('x') }}", "<x>"),
        ("{{ 'a\nb' | indent(2, true) }}", "a\n  b"),
        ("{{ 1234.567 | round(1) }} {{ 1250 | round(-2, 'floor') }}", "1234.6 1200.0"),
        ("{{ {'a': [1, '<']} | tojson(indent=1) }}", '{\n "a": [\n  1,\n  "\\u003c"\n ]\n}'),
        ("{{ given.get('b', 'none') }} {{ 'a' in given }}", "none True"),
        ("{{ 'aXb'.split('X') | last }} {{ -5 // 2 }} {{ 7 % 4 }}", "b -3 3"),
    ],
)
def test_an_ordinary_template_works(text, shown):
    assert fill(text, given={"a": 1}) == shown


def test_too_large_values_and_a_missing_value_are_errors():
    with pytest.raises(LimitExceeded, match=str(CONTEXT_LIMIT)):
        fill("{{ a }}", a="x" * (CONTEXT_LIMIT + 1))
    assert len(fill("{{ a }}{{ a }}", a="x" * CONTEXT_LIMIT)) == OUTPUT_LIMIT
    with pytest.raises(TemplateError, match="'b' is undefined"):
        fill("{{ 'a' ~ b }}")


def test_a_value_is_never_a_template():
    assert fill("{{ a }}", a="{{ 7 * 7 }}{% raw %}") == "{{ 7 * 7 }}{% raw %}"


def test_an_escaped_value_reaches_the_filter_as_plain_text():
    seen = []
    fill(
        "{{ a | e }}{{ a | tojson }}",
        published=True,
        a="<@x>",
        **{rendering.WORDS: lambda text: seen.append(type(text)) or ""},
    )
    assert seen == [str, str]


def test_every_published_value_passes_the_filter_and_the_own_text_does_not():
    seen = []

    def record(text):
        seen.append(text)
        return text.upper()

    text = fill("plain {{ a }} {{ b | live }} {{ a ~ '!' }}", published=True, a="x", b="y", **{rendering.WORDS: record})
    assert text == "plain X y X!"
    assert seen == ["x", "x!"]

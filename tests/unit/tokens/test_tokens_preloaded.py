"""Vocabularies that the forkserver reads, so that workers share them."""

import importlib.util
import subprocess
import sys

import pytest

from agent.tokens import preloaded
from agent.tokens.base import TOKENIZERS

MODELS = {
    "o200k": "gpt-4o",
    "gpt-oss": "gpt-oss-20b",
    "o-series": "o3-mini",
    "cl100k": "gpt-4",
    "qwen": "qwen3",
    "qwen-3.5": "qwen3.6",
    "mistral": "mistral-nemo",
    "deepseek": "deepseek-chat",
}

FORKED = """
import importlib, os, sys
from agent.tokens import counter_for, vocabulary
for name in sys.argv[2:]:
    importlib.import_module(name)
read = vocabulary._cached.cache_info().misses
child = os.fork()
if child == 0:
    counter_for(sys.argv[1]).count("some text")
    os._exit(vocabulary._cached.cache_info().misses - read)
print(read, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("family", TOKENIZERS.names())
def test_each_vocabulary_has_a_module_that_reads_it(family):
    counter = TOKENIZERS.load(family)(MODELS[family])
    assert importlib.util.find_spec(f"{preloaded.__name__}.{counter.vocabulary.replace('.', '_')}") is not None


@pytest.mark.parametrize("model", sorted(MODELS.values()))
def test_a_forked_process_does_not_read_the_vocabulary_again(model):
    names = preloaded.modules_for([model])
    if not names:
        pytest.skip("its vocabulary is not installed")
    command = [sys.executable, "-c", FORKED, model, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 0\n", "")


def test_models_of_one_vocabulary_share_a_module_and_others_have_none():
    assert preloaded.modules_for(["gpt-4o", "o3-mini", "bench-model", ""]) == ["agent.tokens.preloaded.o200k_base"]

"""What a client learns from refusals, and keeps: each thing once, for this process and, with `recall`, for the next.

The other half of `ChatClient` (`client.py`), which sets the attributes that are declared here.  A refusal teaches a
parameter to leave out, the form of ids, turns that must alternate, the longest answer, that there are no tool calls, or
that no pictures are taken.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import (
    HistoryRefused,
    MakimonoError,
    ModelError,
    ModelNotFound,
    RequestRefused,
)
from agent.llm import parameters, wording
from agent.llm.ids import SHORT, form_of
from agent.llm.server import Server

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.llm.base import Kept
    from agent.llm.calling import Calling
    from agent.llm.send_back import SendBack
    from agent.llm.spans import Shape
    from agent.values import Json

MOST_OUTPUT = re.compile(
    r"at most (?P<openai>\d+) ?(?:completion |output )?tokens"
    r"|max_tokens.{0,80}<= ?(?P<vllm>\d+)"
    r"|max_tokens: \d+ > (?P<anthropic>\d+)"
    r"|range of max_tokens is \[\d+, ?(?P<deepseek>\d+)\]"
    r"|max_tokens`? must be less than or equal to `?(?P<groq>\d+)"
)
"""How servers say, in lower case, what a model writes at most."""
LIMIT_NAME = re.compile(r"max_(?:completion_|output_|new_)?tokens|maxoutputtokens|num_predict")
SHORTEST = 16  # tokens; a number below is no limit of an answer
ALTERNATE = re.compile(
    r"alternat|unexpected role '?user'? after role '?tool|role '?tool'? .{0,40}followed by .{0,20}user"
)
"""Refusals of a user's message behind a tool's."""
NO_SUCH_PATH = (404, 405)
AMBIGUOUS = frozenset({"not_found_error"})  # of a missing model and of a missing path
NOT_ABOUT_PICTURES = frozenset((401, 402, 403, 407, 408, 429, 502, 503, 504, 529))
"""Statuses that say something of the account or the load, whatever was asked."""


class Learner(Server):
    """What refusals have taught."""

    learns: ClassVar[tuple[str, ...]]
    tools: Sequence[Json]
    alternate: bool
    back: SendBack
    id_form: str
    shape: Shape | None
    calling: Calling
    pictures_refused: str
    takes_no_pictures: bool
    dropped: set[str]
    said: set[str]
    kept: Kept | None
    _known: Json
    _fresh: Json | None

    def _is_about_the_model(self, error: ModelError) -> bool:
        """Whether a 404 says that the model is missing, and not the path."""
        words = error.quote.lower()
        if wording.MODEL_CODES.intersection(error.codes) - AMBIGUOUS:
            return True
        return self.model.lower() in re.split(r"[\s`'\":,]+", words) or bool(wording.NO_MODEL.search(words))

    @property
    def no_tools(self) -> bool:
        """Learnt: the server refuses tools for this model."""
        return self.calling.refused

    @no_tools.setter
    def no_tools(self, value: bool) -> None:
        self.calling.refused = value

    def facts(self) -> Json:
        """What refusals have taught, as JSON; only what differs from the beginning."""
        found = {name: getattr(self, name) for name in self.learns if getattr(self, name)}
        found |= {"fields": fields} if (fields := self.back.facts()) else {}
        return {name: sorted(value) if isinstance(value, set) else value for name, value in found.items()}

    def take_facts(self, facts: Mapping[str, Any]) -> None:
        """Begin with these and nothing else; what is of another type than it should be is passed over."""
        for name in self.learns:
            known, value = getattr(self, name), facts.get(name)
            if isinstance(known, set):
                setattr(self, name, {str(one) for one in value} if isinstance(value, list) else set())
            else:
                setattr(self, name, value if type(value) is type(known) else type(known)())
        self.back.take_facts(facts.get("fields"))

    def recall(self, kept: Kept) -> None:
        """Begin with what earlier processes have learnt about this model on this server."""
        self.kept = kept
        self._known = dict(kept.get(self.address, self.model))
        self._fresh = self.facts() if self._known else None
        self.take_facts(self._known)

    def remember(self) -> None:
        """Keep what is learnt, where it is not what is kept; an answer is not lost for it."""
        facts = self.facts()
        if self.kept is not None and facts != self._known:
            with suppress(MakimonoError):
                self.kept.put(self.address, self.model, facts)
            self._known = facts

    def doubt(self) -> bool:
        """Begin anew without what earlier processes have learnt, once: the server may have been updated."""
        fresh, self._fresh = self._fresh, None
        if fresh is None or fresh == {name: value for name, value in self.facts().items() if name != "said"}:
            return False
        self.take_facts({**fresh, "said": sorted(self.said)})
        return True

    def first_time(self, word: str) -> bool:
        """Whether this was not said yet, by any process that shares tasks.db."""
        if word in self.said:
            return False
        self.said.add(word)
        self.remember()
        return True

    def optional(self) -> Collection[str]:
        """The parameters of this wire that can be left out."""
        return ("stream", "tool_choice")

    def try_plainer(self, error: ModelError) -> bool:
        """Whether to send a first request again without a part of it, though the refusal names none."""
        del error
        return False

    def drop(self, name: str) -> None:
        """Leave a parameter, or a keyword of the schemas, out from now on."""
        self.dropped.add(name)

    def offers(self, tools: Sequence[Json] | None = None) -> list[Json]:
        """The tools (of the conversation, if no others), without what this server refuses in their schemas."""
        return parameters.without(self.tools if tools is None else tools, self.dropped)

    def chosen(self, fields: Json) -> Json:
        """A choice of tools, unless this server refuses one."""
        return {name: value for name, value in fields.items() if name not in self.dropped}

    def amend(self, error: RequestRefused | HistoryRefused | ModelNotFound) -> bool:
        """Learn from a refusal; True when the next request will be different.  Each thing is learnt once."""
        words = str(error).lower()
        if self.calling.learn(error):
            return True
        if error.status in NO_SUCH_PATH:
            return not self._is_about_the_model(error) and self.next_base()
        if isinstance(error, RequestRefused) and self._amend_parameters(error):
            return True
        if error.status is not None and not self.alternate and ALTERNATE.search(words):
            self.alternate = True
            return True
        form = form_of(str(error))
        if form and self.id_form != SHORT:
            self.id_form = form if form != self.id_form else SHORT
            return True
        named = " ".join([words, *(param.lower() for param in error.params)])
        return self.back.learn(named, self.dialect, self.shape) or self.back.give_up(self.dialect, self.shape)

    def _amend_parameters(self, error: RequestRefused) -> bool:
        """Lower the limit of the answer, or leave out what the refusal names."""
        if not parameters.NOT_TAKEN.search(error.quote) and self._lower_output(error):
            return True
        left = [name for name in self.optional() if name not in self.dropped]
        if name := parameters.refused(error, left, parameters.keywords_of(self.offers())):
            self.drop(name)
            return True
        return self._lower_output(error)

    def _lower_output(self, error: RequestRefused) -> bool:
        """Learn from a refusal how long an answer may be: by known words, else by the largest number in it that is less
        than what was asked for."""
        words = str(error).lower()
        if not LIMIT_NAME.search(" ".join([words, *error.params])) and not MOST_OUTPUT.search(words):
            return False
        known = MOST_OUTPUT.search(words)
        named = [int(known[str(known.lastgroup)])] if known else [int(one) for one in re.findall(r"\d+", error.quote)]
        less = [one for one in named if SHORTEST <= one < self._asked_output]
        if not less:
            return False
        self.most_output = max(less)
        return True

    @property
    def picture_form(self) -> str:
        """How pictures are sent, "" for not at all: as the configuration, the dialect or a refusal says."""
        none = self.keys.images == "never" or self.takes_no_pictures or self.pictures_refused
        return "" if none or self.abilities.get("images") is False else self.dialect.images

    def _give_up_pictures(self, error: ModelError) -> bool:
        """Whether the request is to be sent again without its pictures: a server that takes none has many words for it
        (400, or 500 at llama.cpp, ggml-org/llama.cpp#15377), so any refusal of a request that has some may be one."""
        has_some = self.shape is not None and self.shape.images and self.picture_form
        if not has_some or error.status is None or error.status in NOT_ABOUT_PICTURES:
            return False
        self.pictures_refused = str(error)
        return True

    def _went_without_pictures(self) -> None:
        """A request was answered that had been refused with its pictures: they were the reason."""
        if self.pictures_refused and not self.takes_no_pictures:
            self.takes_no_pictures = True
            self.emit("pictures_refused", error=self.pictures_refused)

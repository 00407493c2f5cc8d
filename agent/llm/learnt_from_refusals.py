"""Learns facts about a model server from the requests that it refuses; the facts hold for this process and, if they are
stored (`load_learnt`), for later processes too.

`Learner` is a base class of `ChatClient` (`client.py`), which sets the attributes that `Learner` declares. A refusal of
a request can show, for example, that the server does not know a parameter, requires a form of ids or alternating roles,
limits the length of an answer, has no tool calls, or does not accept pictures.
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
from agent.llm import error_wordings, refused_parameters
from agent.llm.call_ids import SHORT, form_of
from agent.llm.server_info import Server

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.llm.base import LearntStore
    from agent.llm.fields_sent_back import ReturnedFields
    from agent.llm.tool_call_mode import CallMode
    from agent.message_list_check import Shape
    from agent.values import Json

MOST_OUTPUT = re.compile(
    r"at most (?P<openai>\d+) ?(?:completion |output )?tokens"
    r"|max_tokens.{0,80}<= ?(?P<vllm>\d+)"
    r"|max_tokens: \d+ > (?P<anthropic>\d+)"
    r"|range of max_tokens is \[\d+, ?(?P<deepseek>\d+)\]"
    r"|max_tokens`? must be less than or equal to `?(?P<groq>\d+)"
)
"""Matches the maximum number of output tokens of a model in error messages of servers (in lower case)."""
LIMIT_NAME = re.compile(r"max_(?:completion_|output_|new_)?tokens|maxoutputtokens|num_predict")
SHORTEST = 16  # A smaller number than SHORTEST in a refusal cannot be the maximum number of output tokens.
ALTERNATE = re.compile(
    r"alternat|unexpected role '?user'? after role '?tool|role '?tool'? .{0,40}followed by .{0,20}user"
)
"""Matches refusals by servers that require alternating roles, such as the refusal of a user message directly after a
tool message."""
NO_SUCH_PATH = (404, 405)
# servers send the code `not_found_error` both for a missing model and for a missing path
AMBIGUOUS = frozenset({"not_found_error"})
NOT_ABOUT_PICTURES = frozenset((401, 402, 403, 407, 408, 429, 502, 503, 504, 529))
"""HTTP statuses that concern the account or the state of the server, so that they cannot mean that pictures are
refused."""


class Learner(Server):
    """The part of a client that learns facts about its server from refusals."""

    learns: ClassVar[tuple[str, ...]]
    tools: Sequence[Json]
    alternate: bool
    back: ReturnedFields
    id_form: str
    shape: Shape | None
    calling: CallMode
    pictures_refused: str
    takes_no_pictures: bool
    dropped: set[str]
    said: set[str]
    kept: LearntStore | None
    _known: Json
    _fresh: Json | None

    def _is_about_the_model(self, error: ModelError) -> bool:
        """Whether an error (404 or 405) is caused by the name of the model and not by the path of the request."""
        words = error.quote.lower()
        if error_wordings.MODEL_CODES.intersection(error.codes) - AMBIGUOUS:
            return True
        return self.model.lower() in re.split(r"[\s`'\":,]+", words) or bool(error_wordings.NO_MODEL.search(words))

    @property
    def no_tools(self) -> bool:
        """The learnt fact that the server refuses tools for the client's model."""
        return self.calling.refused

    @no_tools.setter
    def no_tools(self, value: bool) -> None:
        self.calling.refused = value

    def facts(self) -> Json:
        """The learnt facts about the server as JSON; an attribute that is empty, 0 or False is left out."""
        found = {name: getattr(self, name) for name in self.learns if getattr(self, name)}
        found |= {"fields": fields} if (fields := self.back.facts()) else {}
        return {name: sorted(value) if isinstance(value, set) else value for name, value in found.items()}

    def take_facts(self, facts: Mapping[str, Any]) -> None:
        """Replace the learnt facts about the server by `facts` (a result of the method `facts`); values of a wrong type
        are ignored."""
        for name in self.learns:
            known, value = getattr(self, name), facts.get(name)
            if isinstance(known, set):
                setattr(self, name, {str(one) for one in value} if isinstance(value, list) else set())
            else:
                setattr(self, name, value if type(value) is type(known) else type(known)())
        self.back.take_facts(facts.get("fields"))

    def load_learnt(self, kept: LearntStore) -> None:
        """Load the facts that earlier processes learnt about the client's model on its server."""
        self.kept = kept
        self._known = dict(kept.get(self.address, self.model))
        self._fresh = self.facts() if self._known else None
        self.take_facts(self._known)

    def save_learnt(self) -> None:
        """Store the learnt facts if they have changed; an error while storing is ignored, so that the answer is not
        lost."""
        facts = self.facts()
        if self.kept is not None and facts != self._known:
            with suppress(MakimonoError):
                self.kept.put(self.address, self.model, facts)
            self._known = facts

    def reset_learnt(self) -> bool:
        """Drop the facts that earlier processes have learnt, since the server may have been updated meanwhile; only the
        first call for a client has an effect.

        Returns whether the facts of this client have changed.
        """
        fresh, self._fresh = self._fresh, None
        if fresh is None or fresh == {name: value for name, value in self.facts().items() if name != "said"}:
            return False
        self.take_facts({**fresh, "said": sorted(self.said)})
        return True

    def first_time(self, word: str) -> bool:
        """Whether no process that shares the stored facts has given the warning `word` before; after the call the
        warning is recorded as given."""
        if word in self.said:
            return False
        self.said.add(word)
        self.save_learnt()
        return True

    def optional(self) -> Collection[str]:
        """The names of optional parameters: a request to the provider's API can do without them."""
        return ("stream", "tool_choice")

    def try_plainer(self, error: ModelError) -> bool:
        """Whether to send the refused first request of a conversation again without an optional parameter, when the
        refusal names no parameter; by default never."""
        del error
        return False

    def drop_parameter(self, name: str) -> None:
        """Leave out the parameter `name`, or the keyword `name` in tool schemas, from all further requests."""
        self.dropped.add(name)

    def offered_tools(self, tools: Sequence[Json] | None = None) -> list[Json]:
        """The tools of a request (by default those of the conversation), without schema keywords that the server
        refuses."""
        return refused_parameters.without_keywords(self.tools if tools is None else tools, self.dropped)

    def tool_choice(self, fields: Json) -> Json:
        """The parameters `fields` for a tool choice, without the parameters that the server refuses."""
        return {name: value for name, value in fields.items() if name not in self.dropped}

    def adapt_to_refusal(self, error: RequestRefused | HistoryRefused | ModelNotFound) -> bool:
        """Learn a fact from a refusal; returns True when the next request will differ."""
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
        """Lower the maximum length of answers, or leave out the parameter or schema keyword that the refusal names;
        returns whether that was possible."""
        if not refused_parameters.NOT_TAKEN.search(error.quote) and self._lower_output(error):
            return True
        left = [name for name in self.optional() if name not in self.dropped]
        if name := refused_parameters.refused_name(error, left, refused_parameters.keywords_of(self.offered_tools())):
            self.drop_parameter(name)
            return True
        return self._lower_output(error)

    def _lower_output(self, error: RequestRefused) -> bool:
        """Learn the model's maximum number of output tokens from a refusal; returns whether the refusal names a number
        from SHORTEST up to below the requested maximum.

        The number is read from a known phrase in the refusal; without a known phrase it is the largest number in that
        range that the refusal contains.
        """
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
        """The form in which pictures are sent, "" if no pictures are sent; it depends on the configuration, the
        dialect, the data that the server sends, and refusals."""
        none = self.keys.images == "never" or self.takes_no_pictures or self.pictures_refused
        return "" if none or self.abilities.get("images") is False else self.dialect.images

    def _give_up_pictures(self, error: ModelError) -> bool:
        """Whether to send a refused request again without its pictures.

        Servers without support for pictures refuse pictures with many different messages (400, or 500 at llama.cpp,
        ggml-org/llama.cpp#15377), so pictures may be the cause of any refusal of a request that has some.
        """
        has_some = self.shape is not None and self.shape.images and self.picture_form
        if not has_some or error.status is None or error.status in NOT_ABOUT_PICTURES:
            return False
        self.pictures_refused = str(error)
        return True

    def _went_without_pictures(self) -> None:
        """Learn that the server does not accept pictures, if a request that was refused with its pictures has succeeded
        without them."""
        if self.pictures_refused and not self.takes_no_pictures:
            self.takes_no_pictures = True
            self.emit("pictures_refused", error=self.pictures_refused)

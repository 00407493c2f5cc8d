"""Selects which provider-specific fields of earlier answers (such as reasoning) a request contains, by the server's
dialect and by what was learnt from refusals.

The view has only the provider-specific fields that the current API and model produced (`context/provider_fields.py`).
If the server accepts all provider-specific fields in the view and requires no others, the lines of the view are sent
unchanged; otherwise each message is changed for the request.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.llm.dialects import When

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.llm.dialects import Dialect
    from agent.message_list_check import Shape
    from agent.values import Json

BLOCKS = "thinking_blocks"  # the value must be equal to `wire_anthropic.BLOCKS`
ANY = "*"
"""The key in a dialect's table `send_back` for the fields that have no entry in the table."""
PLAIN = frozenset(("role", "content", "tool_calls", "name"))
PLAIN_CALL = frozenset(("id", "type", "function"))

MISSING = re.compile(
    r"missing|must be (?:passed|sent|provided|included|preserved|returned|present|set)|is required|requires|passed back"
    r"|field required|lacks|expected .{0,20}thinking|must (?:have|start with|contain|include)",
    re.IGNORECASE,
)
UNWANTED = re.compile(
    r"remove|not (?:be )?(?:permitted|allowed|supported|accepted|included)|unsupported|unknown|unrecogni[sz]ed"
    r"|unexpected"
    r"|extra|additional propert|forbidden|cannot pass both|cannot be modified|invalid `?signature|must not",
    re.IGNORECASE,
)
STAND_INS: Mapping[str, Any] = {
    "reasoning_content": " ",
    "reasoning": " ",
    BLOCKS: [{"type": "thinking", "thinking": " ", "signature": ""}],
}
"""Placeholders for fields that a server requires in each earlier answer; a placeholder is added to an answer that lacks
the field, such as an answer of another model."""
STAND_INS_IN_CALLS: Mapping[str, Any] = {
    "extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}},
}
SPELLINGS: Mapping[str, str] = {
    "thought_signature": "extra_content",
    "thoughtsignature": "extra_content",
    "redacted_thinking": BLOCKS,
    "content[].thinking": BLOCKS,
    "`thinking` block": BLOCKS,
    "thinking block": BLOCKS,
    "content and thinking": "reasoning_content",
}
"""Spelling of a field in refusals of servers → name of the field in a message, where the two differ."""


class ReturnedFields:
    """The rules of one client for fields of earlier answers that are sent back to the server.

    `dialect` is a parameter of each method, since the client's dialect changes when the server is recognised.
    """

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.learnt: dict[str, When] = {}
        self.wanted: set[str] = set()  # learnt: fields that the server requires in each earlier answer
        self.bare = False  # True if no provider-specific fields are sent back any more
        # True if the server has answered a request whose messages have provider-specific fields, sent while `bare` was
        # False
        self.proven = False

    # --- reading the rules ------------------------------------------------------------------------------------

    def when(self, dialect: Dialect, name: str, *, in_call: bool = False) -> When:
        """In which requests the field `name` of an earlier answer is sent back."""
        table = dialect.send_back_in_calls if in_call else dialect.send_back
        if self.bare:
            return When.NEVER
        return self.learnt.get(name) or table.get(name) or table.get(ANY, When.NEVER)

    def _sent(self, dialect: Dialect, name: str, *, in_call: bool = False, in_loop: bool = True) -> bool:
        when = self.when(dialect, name, in_call=in_call)
        return when is When.ALWAYS or (when is When.LOOP and in_loop)

    def needs(self, dialect: Dialect) -> Mapping[str, Any]:
        """Placeholders for the fields that the server requires in every earlier answer: name → value."""
        if self.bare:
            return {}
        names = {name for name in dialect.stand_ins if self.learnt.get(name) is not When.NEVER} | self.wanted
        names = names & {BLOCKS} if self.wire == "anthropic" else names - {BLOCKS}
        return {name: STAND_INS[name] for name in sorted(names & set(STAND_INS))}

    def needs_in_calls(self, dialect: Dialect) -> Mapping[str, Any]:
        """Placeholders for the fields that the server requires in the first tool call of every earlier answer: name →
        value."""
        names = ({*dialect.stand_ins} | self.wanted) & set(STAND_INS_IN_CALLS)
        return {} if self.bare else {name: STAND_INS_IN_CALLS[name] for name in sorted(names)}

    def is_as_it_stands(self, dialect: Dialect, shape: Shape) -> bool:
        """Whether the stored message lines can be sent unchanged: the server accepts all fields in them and requires no
        other fields."""
        for name in shape.fields:
            if not self._sent(dialect, name, in_loop=name not in shape.older_fields):
                return False
        for name in shape.call_fields:
            if not self._sent(dialect, name, in_call=True, in_loop=name not in shape.older_fields):
                return False
        if any(shape.fields.get(name, 0) < shape.answers for name in self.needs(dialect)):
            return False
        return not self.needs_in_calls(dialect) or not shape.unsigned

    # --- writing ----------------------------------------------------------------------------------------------

    def applied(self, messages: Iterable[Json], dialect: Dialect, shape: Shape) -> Iterator[Json]:
        """The messages for a request: fields that the server does not accept are removed, and fields that the server
        requires are added."""
        needs, in_calls = self.needs(dialect), self.needs_in_calls(dialect)
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                yield message
                continue
            in_loop = number >= shape.loop
            changed = {
                key: value
                for key, value in message.items()
                if key in PLAIN or self._sent(dialect, key, in_loop=in_loop)
            }
            if self.wire != "anthropic" or message.get("tool_calls"):
                changed |= {name: value for name, value in needs.items() if not changed.get(name)}
            if calls := message.get("tool_calls"):
                changed["tool_calls"] = [
                    self._call(call, dialect, in_calls if not place else {}, in_loop=in_loop)
                    for place, call in enumerate(calls)
                ]
            yield changed

    def _call(self, call: Json, dialect: Dialect, needs: Mapping[str, Any], *, in_loop: bool) -> Json:
        kept = {
            key: value
            for key, value in call.items()
            if key in PLAIN_CALL or self._sent(dialect, key, in_call=True, in_loop=in_loop)
        }
        function = call["function"]
        if len(function) > 2:
            function = {
                key: value
                for key, value in function.items()
                if key in ("name", "arguments") or self._sent(dialect, key, in_call=True, in_loop=in_loop)
            }
        return {**needs, **kept, "function": function}

    # --- for the next process ---------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """The learnt facts about the provider-specific fields that the server accepts, as JSON."""
        found: dict[str, Any] = {name: when.value for name, when in sorted(self.learnt.items())}
        found |= {"wanted": sorted(self.wanted)} if self.wanted else {}
        return found | ({"bare": True} if self.bare else {})

    def take_facts(self, facts: Any) -> None:
        """Replace the learnt facts about provider-specific fields by `facts` (a result of the method `facts`); values
        of a wrong type are ignored."""
        facts = facts if isinstance(facts, dict) else {}
        known = {when.value: when for when in When}
        self.bare = facts.get("bare") is True
        wanted = facts.get("wanted")
        self.wanted = {str(name) for name in wanted} if isinstance(wanted, list) else set()
        self.learnt = {name: known[when] for name, when in facts.items() if isinstance(when, str) and when in known}

    # --- learning ---------------------------------------------------------------------------------------------

    def learn(self, words: str, dialect: Dialect, shape: Shape | None) -> bool:
        """Learn from the text of a refusal (in lower case) that names a provider-specific field; returns True when the
        next request will differ from the refused one."""
        if shape is None or self.bare:
            return False
        for name in self._named(words, shape):
            in_call = name in shape.call_fields or name in STAND_INS_IN_CALLS
            present = name in shape.fields or name in shape.call_fields
            if MISSING.search(words) and not UNWANTED.search(words):
                if present and self.when(dialect, name, in_call=in_call) is not When.ALWAYS:
                    self.learnt[name] = When.ALWAYS
                    return True
                if name not in self.wanted and (name in STAND_INS or name in STAND_INS_IN_CALLS):
                    self.wanted.add(name)
                    return True
            elif UNWANTED.search(words) and (present or name in self.needs(dialect)):
                return self._drop(name, dialect, shape, in_call=in_call)
        return False

    def _drop(self, name: str, dialect: Dialect, shape: Shape, *, in_call: bool) -> bool:
        before = self.when(dialect, name, in_call=in_call)
        if before is When.NEVER and name not in self.wanted and name not in dialect.stand_ins:
            return False
        older = before is When.ALWAYS and name in shape.older_fields and name not in self.wanted
        self.wanted.discard(name)
        self.learnt[name] = When.LOOP if older else When.NEVER
        return True

    def give_up(self, dialect: Dialect, shape: Shape | None) -> bool:
        """Stop sending provider-specific fields back; returns True when the next request will differ from the refused
        one.

        `give_up` is called after a refusal from which `learn` has learnt nothing. Nothing changes if the server has
        already answered a request for messages with provider-specific fields (`proven`).
        """
        if shape is None or self.bare or self.proven:
            return False
        sent = [name for name in shape.fields if self._sent(dialect, name)]
        sent += [name for name in shape.call_fields if self._sent(dialect, name, in_call=True)]
        self.bare = bool(sent)
        return self.bare

    def accepted(self, shape: Shape) -> None:
        """Record that the server has answered a request for the messages that `shape` describes, so that `give_up` no
        longer changes anything if they have provider-specific fields."""
        self.proven |= not self.bare and bool(shape.fields or shape.call_fields)

    @staticmethod
    def _named(words: str, shape: Shape) -> list[str]:
        """The fields that a refusal names, the longest name first, since a short name such as `reasoning` may be a part
        of a longer name."""
        known = {name.lower(): name for name in (*shape.fields, *shape.call_fields, *STAND_INS, *STAND_INS_IN_CALLS)}
        known |= SPELLINGS
        found = [spelled for spelled in known if re.search(rf"(?<![\w]){re.escape(spelled)}(?![\w])", words)]
        return [known[spelled] for spelled in sorted(found, key=len, reverse=True)]

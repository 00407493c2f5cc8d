"""Award emoji and threads of our loopback GitLab.

- a second award of one name by one account is refused with 404 and the reason (gitlab.com/gitlab-org/gitlab/-/issues/26060)
- a system note takes no award, and an award moves `updated_at` of a note (gitlab-org/gitlab, app/models/note.rb,
  `emoji_awardable?` and `bump_updated_at`)
- an answer to a note that stands alone makes a thread of it (docs.gitlab.com/api/discussions, "Add note to existing
  merge request thread")
- a thread of a merge request is resolved as a whole (the same page, "Resolve a merge request thread")
"""

from __future__ import annotations

from forges.gitlab_call import Call
from forges.gitlab_errors import Refused, missing
from forges.gitlab_state import DEVELOPER, GUEST

EMOJI = ("eyes", "thumbsup", "thumbsdown", "rocket", "heart", "tada", "confused", "white_check_mark", "warning")


class TalkCalls(Call):
    """A part of `gitlab_routes.Routed`."""

    def _award_shape(self, one, item, note):
        kind = "Note" if note is not None else "MergeRequest" if item["kind"] == "merge_requests" else "Issue"
        of = {"awardable_id": (note or item)["id"], "awardable_type": kind, "url": None}
        return {**one, "user": self.basic(one["user"])} | of

    def _awarded(self, name, kind, number, note_id):
        """(item, note or None, its awards)."""
        item = self.find_item(name, kind, number)
        note = None if note_id is None else self._own_note(name, kind, number, note_id)[1]
        return item, note, (note or item).setdefault("awards", [])

    def awards(self, name, kind, number, note_id=None):
        item, note, found = self._awarded(name, kind, number, note_id)
        self.take()
        return self.paged(found, lambda one: self._award_shape(one, item, note))

    def award(self, name, kind, number, note_id=None):
        item, note, found = self._awarded(name, kind, number, note_id)
        word = self.body.get("name") or self.query.get("name")
        if word is None:
            raise Refused(400, {"error": "name is missing"})
        if word not in EMOJI:
            raise missing("Award Emoji Name is not a valid emoji name")
        if any(one["user"] is self.who and one["name"] == word for one in found):
            raise missing("Award Emoji Name has already been taken")
        if note is not None and note["system"]:
            raise missing("Award Emoji Awardable cannot be awarded emoji")
        now = self.server.now()
        if note is not None:
            note["updated_at"] = now
        one = {"id": self.server._id(), "name": word, "user": self.who, "created_at": now, "updated_at": now}
        found.append(one)
        return 201, {}, self._award_shape(one, item, note)

    def unaward(self, name, kind, number, *rest):
        *note_id, award = rest
        _, _, found = self._awarded(name, kind, number, note_id[0] if note_id else None)
        one = next((one for one in found if str(one["id"]) == award and one["user"] is self.who), None)
        if one is None:
            raise missing()
        found.remove(one)
        return 204, {}, None

    def _thread(self, name, kind, number, thread):
        item = self.find_item(name, kind, number, GUEST)
        notes = [one for one in item["notes"] if one["thread"] == thread]
        if not notes:
            raise missing("Discussion")
        return item, notes

    def _discussion_shape(self, item, thread):
        notes = [one for one in item["notes"] if one["thread"] == thread]
        alone = len(notes) == 1 and notes[0]["type"] is None
        return {"id": thread, "individual_note": alone, "notes": [self.note_shape(item, one) for one in notes]}

    def one_discussion(self, name, kind, number, thread):
        item, _ = self._thread(name, kind, number, thread)
        return 200, {}, self._discussion_shape(item, thread)

    def _answered(self, item, text):
        rest = self.server._quick_actions(item, self.who, text)
        if not rest:  # unlike a plain note, an answer of quick actions only is refused
            raise Refused(400, {"message": '400 Bad request - Note {:commands_only=>["Applied."]}'})
        return rest

    def start_discussion(self, name, kind, number):
        item = self.find_item(name, kind, number, GUEST)
        self.take("body", "position", "created_at", of="body")
        position = self.body.pop("position", None)
        text = self._answered(item, self._note_text())
        kinds = {} if position else {"kind": "DiscussionNote"}
        note = self.server._note(item, self.who, text, position=position, **kinds)
        return 201, {}, self._discussion_shape(item, note["thread"])

    def answer_discussion(self, name, kind, number, thread):
        item, notes = self._thread(name, kind, number, thread)
        text = self._answered(item, self._note_text())
        for one in notes:
            one["type"] = one["type"] or "DiscussionNote"
        where = {"position": notes[0]["position"]} if "position" in notes[0] else {}
        return 201, {}, self.note_shape(item, self.server._note(item, self.who, text, thread=thread, **where))

    def resolve_discussion(self, name, kind, number, thread):
        item, notes = self._thread(name, kind, number, thread)
        if kind != "merge_requests" or not any(one["type"] for one in notes):
            raise Refused(400, {"message": "400 Bad request - discussion is not resolvable"})
        if item["project"]["members"].get(self.who["id"], 0) < DEVELOPER and item["author"] is not self.who:
            raise Refused(403, {"message": "403 Forbidden"})
        wish = self.body.get("resolved", self.query.get("resolved"))
        if wish is None:
            raise Refused(400, {"error": "resolved is missing"})
        for one in notes:
            one["resolved"] = wish in (True, "true")
            one["resolver"] = self.who if one["resolved"] else None
        item["updated_at"] = self.server.now()
        return 200, {}, self._discussion_shape(item, thread)

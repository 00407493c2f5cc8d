"""Labels, notes and discussions of our loopback GitLab."""

from __future__ import annotations

from datetime import datetime

from forges.gitlab_call import Call
from forges.gitlab_errors import Refused, forbidden, missing
from forges.gitlab_state import GUEST, MAX_NOTE


class NoteCalls(Call):
    """A part of `gitlab_routes.Routed`."""

    def labels(self, name):
        found = [
            {"id": number, "name": label, "color": "#428bca", "text_color": "#FFFFFF", "description": None}
            | {"description_html": "", "is_project_label": True, "priority": None, "subscribed": False}
            | {"open_issues_count": 0, "closed_issues_count": 0, "open_merge_requests_count": 0}
            for label, number in sorted(self.find_project(name)["labels"].items())
        ]
        return self.paged(found, dict)

    def label_events(self, name, kind, number):
        item = self.find_item(name, kind, number)

        def shape(event):
            # null once the label was deleted: the foreign key of resource_label_events (db/structure.sql)
            label = event["label"] and {**event["label"], "color": "#428bca", "description": None}
            of = {"resource_type": "Issue" if kind == "issues" else "MergeRequest", "resource_id": item["id"]}
            return event | {"user": self.basic(event["user"]), "label": label} | of

        return self.paged(item["events"], shape)

    def notes(self, name, kind, number):
        item = self.find_item(name, kind, number)
        self.take("activity_filter")
        kinds = self.choice("activity_filter", "all_notes", "only_comments", "only_activity")
        order = self.choice("order_by", "created_at", "updated_at") or "created_at"
        found = [
            note
            for note in item["notes"]
            if kinds in (None, "all_notes") or note["system"] == (kinds == "only_activity")
        ]
        found.sort(
            key=lambda note: (datetime.fromisoformat(note[order]), note["id"]),
            reverse=self.query.get("sort", "desc") == "desc",
        )
        return self.paged(found, lambda note: self.note_shape(item, note))

    def discussions(self, name, kind, number):
        item = self.find_item(name, kind, number)
        self.take()
        threads = {}
        for note in item["notes"]:
            threads.setdefault(note["thread"], []).append(note)

        def shape(entry):
            alone = len(entry[1]) == 1 and entry[1][0]["type"] is None
            return {
                "id": entry[0],
                "individual_note": alone,
                "notes": [self.note_shape(item, note) for note in entry[1]],
            }

        return self.paged(list(threads.items()), shape)

    def write_note(self, name, kind, number):
        item = self.find_item(name, kind, number, GUEST)
        text = self._note_text()
        rest = self.server._quick_actions(item, self.who, text)
        if not rest:
            return 202, {}, {"commands_changes": {}, "summary": ["Applied."]}
        return 201, {}, self.note_shape(item, self.server._note(item, self.who, rest))

    def _note_text(self):
        text = self.take("body", of="body").get("body")
        if not isinstance(text, str) or not text.strip():
            raise Refused(400, {"message": '400 Bad request - Note {:note=>["can\'t be blank"]}'})
        if len(text) > MAX_NOTE:
            reason = f'400 Bad request - Note {{:note=>["is too long (maximum is {MAX_NOTE} characters)"]}}'
            raise Refused(400, {"message": reason})
        return text

    def _own_note(self, name, kind, number, note_id):
        item = self.find_item(name, kind, number)
        note = next((one for one in item["notes"] if str(one["id"]) == note_id), None)
        if note is None:
            raise missing()
        return item, note

    def one_note(self, name, kind, number, note_id):
        return 200, {}, self.note_shape(*self._own_note(name, kind, number, note_id))

    def edit_note(self, name, kind, number, note_id):
        item, note = self._own_note(name, kind, number, note_id)
        if note["author"]["id"] != self.who["id"]:
            raise forbidden()
        note["body"] = self.server._quick_actions(item, self.who, self._note_text())
        note["updated_at"] = item["updated_at"] = self.server.now()
        return 200, {}, self.note_shape(item, note)

    def remove_note(self, name, kind, number, note_id):
        item, note = self._own_note(name, kind, number, note_id)
        if note["author"]["id"] != self.who["id"]:  # a maintainer may edit it; our account is not one
            raise forbidden()
        item["notes"].remove(note)
        item["updated_at"] = self.server.now()
        return 204, {}, None

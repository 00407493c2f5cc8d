"""What GitHub does by itself with pull requests and issues when branches move, checks end, or somebody merges.

- a merge into the default branch closes the issues that its description or its commit messages name with a closing word
  (docs.github.com/en/issues/tracking-your-work-with-issues/using-issues/linking-a-pull-request-to-an-issue); so does a
  commit that is pushed to the default branch
- a pull request whose commits are all in its base is merged (docs.github.com/en/pull-requests/collaborating-with-pull-
  requests/incorporating-changes-from-a-pull-request/about-pull-request-merges, "Indirect merges")
- one whose branch is removed is closed; when the branch of a merged one is removed, the open ones onto it go onto the
  base of the merged one, others onto a removed branch are closed; a renamed base is followed (docs.github.com/en/
  repositories/configuring-branches-and-merges-in-your-repository/managing-branches-in-your-repository)
- `mergeable` is null until GitHub has tried the merge, which the first request begins (docs.github.com/en/rest/guides/
  using-the-rest-api-to-interact-with-your-git-database, "Checking mergeability of pull requests")
- auto-merge merges when the checks are green (docs.github.com/en/pull-requests/collaborating-with-pull-requests/
  incorporating-changes-from-a-pull-request/automatically-merging-a-pull-request); a draft cannot have it
"""

from __future__ import annotations

from forges import git_repository
from forges.host_rules import github_closes


class Lifecycle:
    """A part of `github_state.Repo`.  Without a repository in git only the calls of people have an effect."""

    # --- what people do ---------------------------------------------------------------------------------------

    def close(self, number, actor, *, commit=None, reason="completed"):
        """Somebody closes an issue or pull request, or a merge does (`commit`)."""
        issue = self.issues[number]
        if issue["state"] == "closed":
            return
        self.event(issue, "closed", actor, commit_id=commit)
        issue.update(state="closed", closed_at=issue["updated_at"], closed_by=actor)
        issue["state_reason"] = None if issue["pull"] else reason

    def reopen(self, number, actor):
        issue = self.issues[number]
        issue.update(state="open", closed_at=None, closed_by=None, state_reason="reopened")
        self.event(issue, "reopened", actor)

    def merge(self, number, commits=(), *, actor="alice"):
        """A person merges; returns the issues that the merge closes.

        `commits` are messages; the title becomes one more, as in a squash.  In git the branch is merged, unless the
        base has it already.
        """
        issue = self.issues[number]
        pull, before = issue["pull"], {one for one in self.issues if self.issues[one]["state"] == "open"}
        if self.git is not None and not git_repository.contains(self.git, pull["base"], pull["head"]):
            words = f"Merge pull request #{number} from {self.full_name}\n\n{issue['title']}"
            assert git_repository.merge(self.git, pull["base"], pull["head"], words), "a conflict"
        self._merged(issue, actor, (issue["title"], *commits))
        if self.delete_on_merge:
            self.delete_branch(pull["head"], actor)
        self.refresh()
        return {one for one in before - {number} if self.issues[one]["state"] == "closed"}

    def auto_merge(self, number, actor):
        """A person lets GitHub merge when the checks are green."""
        assert not self.issues[number]["pull"]["draft"], "GitHub has no auto-merge for a draft"
        self.issues[number]["pull"]["auto_merge"] = actor
        self.refresh()

    def delete_branch(self, name, actor="alice"):
        """A person removes a branch on GitHub's pages."""
        self.refresh()
        merged = [one for one in self.issues.values() if one["pull"] and one["pull"]["merged_at"]]
        base = next((one["pull"]["base"] for one in merged if one["pull"]["head"] == name), None)
        for issue in self._open_pulls():
            if issue["pull"]["base"] == name and base is not None:
                issue["pull"]["base"] = base
                self.event(issue, "automatic_base_change_succeeded", actor)
            elif issue["pull"]["base"] == name:
                self.close(issue["number"], actor)
            elif issue["pull"]["head"] == name and issue["pull"]["fork"] is None:
                self.event(issue, "head_ref_deleted", actor)
                self.close(issue["number"], actor)
        self.branches.discard(name)
        if self.git is not None:
            git_repository.remove(self.git, name)
            self.tips.pop(name, None)

    def rename_branch(self, name, to, actor="alice"):
        """A person renames a branch: its pull requests follow as a base, and are closed as a head."""
        commit = self.commit_of(name)
        self.branches.add(to)
        if self.git is not None:
            git_repository._git(self.git, "update-ref", f"refs/heads/{to}", commit)
        for issue in self._open_pulls():
            if issue["pull"]["base"] == name:
                issue["pull"]["base"] = to
                self.event(issue, "base_ref_changed", actor)
        if self.default_branch == name:
            self.default_branch = to
        self.delete_branch(name, actor)

    def _open_pulls(self):
        return [one for one in self.issues.values() if one["pull"] and one["state"] == "open"]

    # --- what GitHub does by itself -----------------------------------------------------------------------------

    def _merged(self, issue, actor, commits=()):
        pull = issue["pull"]
        host, closed = self.base.removeprefix("http://"), set()
        pull["merged_at"], pull["merged_by"] = self.moment(), actor
        self.event(issue, "merged", actor)
        self.close(issue["number"], actor)
        if pull["base"] != self.default_branch:
            return
        closed |= github_closes(issue["body"], host, self.full_name)
        for message in commits:
            closed |= github_closes(message, host, self.full_name, is_markdown=False)
        self._close_named(closed, actor)

    def _close_named(self, numbers, actor, commit=None):
        for number in numbers:
            if number in self.issues and self.issues[number]["pull"] is None:
                self.close(number, actor, commit=commit)

    def checks_changed(self, _sha):
        """A check of a commit has changed."""
        self.refresh()

    def refresh(self, actor="alice"):
        """Act on what was pushed since the last call, and on checks that have ended."""
        if self.git is None or not self.git.exists():
            return
        tips = git_repository.branches(self.git)
        default = self.default_branch
        if default in tips and self.tips.get(default, tips[default]) != tips[default]:
            host = self.base.removeprefix("http://")
            for message in git_repository.messages(self.git, self.tips[default], tips[default]):
                named = github_closes(message, host, self.full_name, is_markdown=False)
                self._close_named(named, actor, tips[default])
        self.tips = tips
        for issue in self._open_pulls():
            self._refresh_pull(issue, tips, actor)

    def _refresh_pull(self, issue, tips, actor):
        pull = issue["pull"]
        ours, tip = pull["fork"] is None, tips.get(pull["head"])
        if ours and tip is None and pull.get("seen"):
            self.event(issue, "head_ref_deleted", actor)
            self.close(issue["number"], actor)
            return
        if ours and tip is not None:
            if pull.get("seen") and pull["sha"] != tip:
                issue["updated_at"] = self.moment()
            pull["sha"], pull["seen"] = tip, True
        base = tips.get(pull["base"])
        if base is None and pull.get("seen"):
            self.event(issue, "base_ref_deleted", actor)
            self.close(issue["number"], actor)
        elif ours and tip is not None and base is not None:
            if git_repository.contains(self.git, base, tip):
                self._merged(issue, actor)
            elif pull.get("auto_merge") and self._may_merge(pull, base, tip):
                self.merge(issue["number"], actor=pull["auto_merge"])

    def _may_merge(self, pull, base, tip):
        is_green = self.checks.result(tip) in ("", "green")
        return is_green and not pull["draft"] and git_repository.goes_together(self.git, base, tip)

    def mergeable(self, issue):
        """(`mergeable`, `mergeable_state`); (None, "unknown") before the merge was tried."""
        pull = issue["pull"]
        if self.git is None or issue["state"] != "open":
            return None, "unknown"
        tips = git_repository.branches(self.git)
        pair = tips.get(pull["base"]), pull["sha"]
        if None in pair or pull.get("tried") != pair:
            pull["tried"] = pair
            return None, "unknown"
        if not git_repository.goes_together(self.git, *pair):
            return False, "dirty"
        if pull["draft"]:
            return True, "draft"
        return True, "unstable" if self.checks.result(pull["sha"]) in ("red", "pending") else "clean"

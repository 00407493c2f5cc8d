"""A pull request of a task on a forge of loopback, with a ledger and a poller: for tests of what follows red CI."""

from forges.gitlab_place import GitLabPlace

from agent.intake.poller import Poller
from agent.taskqueue import LEDGERS

HEAD, BASE, OTHER, NEXT = "a" * 40, "b" * 40, "c" * 40, "d" * 40


class RedCi:
    """A place with one issue; its task has opened a pull request with the head HEAD on BASE.  `first` is that task."""

    def __init__(self, place, home, time):
        self.place = place
        self.home = home
        self.time = time
        self.ledger = LEDGERS.load("sqlite")(home.settings.base_dir, "")
        self.poller = Poller(home.settings, self.ledger, [place.forge], home.events)

    def close(self):
        self.ledger.close()
        self.place.close()

    def poll(self):
        return self.poller.poll(everything=True)

    def asked(self):
        return len(self.place.server.journal)

    def own(self, key):
        """What the account wrote, without progress comments."""
        own = [body for author, body in self.place.comments(key) if author != "alice"]
        return [body for body in own if ":progress -->" not in body]

    def opened(self):
        place = self.place
        self.key = place.issue(labels=())
        place.branch("makimono/1")
        options = {"title": "Mend it", "body": "For #1", "head": "makimono/1", "base": "main", "draft": False}
        self.pull = place.forge.open_pull(self.key, **options)
        self.push(HEAD)
        self.first = self.end(head_commit=HEAD, base_commit=BASE, branch="makimono/1", url=self.pull.url)
        return self

    def push(self, commit):
        """The head of the pull request is another commit."""
        place = self.place
        if isinstance(place, GitLabPlace):
            place.project["merge_requests"][int(self.pull.id)]["sha"] = commit
        else:
            place.repo.issues[int(self.pull.id)]["pull"]["sha"] = commit

    def end(self, uuid=None, status="completed", **columns):
        """A task ends, the newest of the issue or one that was started."""
        uuid = self.ledger.enqueue(self.key, title="It", user="alice") if uuid is None else uuid
        claim = self.ledger.claim(uuid, "me", 60)
        for name, value in columns.items():
            self.ledger.db.execute(f"UPDATE tasks SET {name} = '{value}' WHERE uuid = '{uuid}'")
        self.ledger.finish(uuid, claim.attempt, status)
        self.place.put_labels(self.key, "coding agent done")
        self.time.move(5)
        return uuid

    def tried(self):
        return [body for body in self.own(self.key) if "CI is still red" in body]

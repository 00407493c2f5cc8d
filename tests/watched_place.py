"""A place on loopback with a poller and a ledger: rows without a worker, as the comment poller finds them."""

from __future__ import annotations

from agent import clock
from agent.intake.poller import Poller
from agent.taskqueue import LEDGERS


class Watching:
    """The poller of a place on loopback, with a ledger of its own."""

    def __init__(self, place, home):
        self.place = place
        self.home = home
        self.ledger = LEDGERS.load("sqlite")(home.settings.base_dir, "")
        self.poller = Poller(home.settings, self.ledger, [place.forge], home.events)

    def ended(self, key, status="completed", label="coding agent done"):
        self.place.put_labels(key, label)
        claim = self.ledger.claim(self.ledger.enqueue(key, title="It"), "me", 60)
        self.ledger.finish(claim.uuid, claim.attempt, status)
        return claim.uuid

    def begun(self, key, put_off=None, **columns):
        """A row that a worker had and let go of."""
        claim = self.ledger.claim(self.ledger.enqueue(key, title="It"), "me", 60)
        for name, value in ({"last_seq": 2} | columns).items():
            self.ledger.db.execute(f"UPDATE tasks SET {name} = '{value}' WHERE uuid = '{claim.uuid}'")
        self.ledger.release(claim.uuid, claim.attempt, put_off and clock.now() + put_off)
        return claim.uuid

    def own(self, key):
        """What the account wrote, without progress comments."""
        own = [body for author, body in self.place.comments(key) if author not in ("alice", "bob")]
        return [body for body in own if ":progress -->" not in body]

    def progress(self, key):
        """The one progress comment."""
        (body,) = [body for _, body in self.place.comments(key) if ":progress -->" in body]
        return body

    def poll(self):
        return self.poller.poll(everything=True)

    def asked(self):
        return len(self.place.server.journal)

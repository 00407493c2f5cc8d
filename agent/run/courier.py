"""The daemon's messenger to the broker: publishes what is queued, fetches what others published, acknowledges.

A thread of its own with its own ledger connection, so that a broker that hangs never holds up the supervisor.  While
the broker is away the supervisor polls the ledger as if there were none; the thread tries again, pausing longer each
time.  Nothing here decides who works: the claim does.  Built by `run/daemon.py` when `taskqueue.broker` is set.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import MakimonoError
from agent.observe.items import Items
from agent.run.kept_thread import KeptThread
from agent.run.wiring import Wiring
from agent.taskqueue.broker import make_broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.observe.events import Events
    from agent.taskqueue import Row
    from agent.taskqueue.broker import Delivery
    from agent.taskqueue.ledger import Ledger

TICK, IDLE_TICK, QUIET_TICK = 0.1, 0.5, 5.0
"""Seconds between two looks at the broker: while something comes, while nothing does, and the same where the ledger
tells of changes."""
ACTIVE_SECONDS = 2.0
PUBLISH_SECONDS = 0.5
AGAIN_SECONDS = 30.0
"""After that long a row that is still queued is published again, if nothing waits in the broker."""
SWEEP_SECONDS, IDLE_SWEEP_SECONDS = 5.0, 15.0
LONGEST_PAUSE = 30.0
AT_ONCE = 100


class Courier:
    """`room` is how many tasks the supervisor could start now; `take` hands over their uuids, `settle` lets one go.
    `arrived` is called when there is something to take.  `tells`: whether the ledger tells of changes; who hears that
    calls `stir`, and the broker is asked rarely otherwise."""

    def __init__(self, settings: Settings, events: Events, arrived: Callable[[], None] = lambda: None) -> None:
        assert settings.taskqueue.broker is not None
        self.settings = settings
        self.events = events
        self.broker = make_broker(settings.taskqueue.broker)
        self.room = 0
        self.connected = False
        self.tells = False
        self._on_arrival = arrived
        self._active_until = 0.0
        self._stirred = threading.Event()
        self._arrived: deque[Delivery] = deque()
        self._held: dict[str, list[Delivery]] = {}
        self._settled: deque[str] = deque()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.items = Items.of(events, "broker")
        self.thread = KeptThread("courier", self._run, self._died)

    def start(self) -> None:
        """Begin to work."""
        self.thread.start()

    def stop(self) -> None:
        """End; what was fetched and not settled goes back to the broker."""
        self._ended.set()
        self._stirred.set()
        self.thread.join(LONGEST_PAUSE)

    def take(self, count: int) -> list[str]:
        """At most `count` uuids that arrived; each is to be settled when its worker has reported."""
        with self._lock:
            taken = [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]
            for delivery in taken:
                self._held.setdefault(delivery.uuid, []).append(delivery)
        return [delivery.uuid for delivery in taken]

    def settle(self, uuid: str) -> None:
        """The message of that task has done its work: acknowledge it.  Nothing happens when there is none."""
        if uuid in self._held:
            self._settled.append(uuid)
            self._stirred.set()

    def stir(self) -> None:
        """Something may have changed: look at once, and often for a while."""
        self._active_until = clock.monotonic() + ACTIVE_SECONDS
        self._stirred.set()

    def _died(self, seconds: float) -> None:
        why = "the courier was ended by an error that nobody foresaw; its trace is in the daemon's log"
        self.events.emit("broker_away", broker=self.broker.where, error=why, seconds=seconds)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 1.0
        while not self._ended.is_set():
            wiring = Wiring(self.settings, events=self.events)
            try:
                self.broker.connect()
                ledger = wiring.ledger
                self.connected, pause = True, 1.0
                self.events.emit("broker_connected", broker=self.broker.where)
                self._work(ledger)
            except MakimonoError as error:
                self.events.emit("broker_away", broker=self.broker.where, error=str(error), seconds=pause)
            finally:
                self._forget()
                self.broker.close()
                wiring.close()
            self._ended.wait(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _work(self, ledger: Ledger) -> None:
        publish_at = sweep_at = clock.monotonic()
        while not self._ended.is_set():
            self._acknowledge()
            now = clock.monotonic()
            if now >= sweep_at:
                sweep_at = now + (SWEEP_SECONDS if self._is_active() or not self.tells else IDLE_SWEEP_SECONDS)
                # What waits in the broker would only be doubled; what it lost is published when it has run dry.
                self._publish(ledger, AGAIN_SECONDS if self.broker.depth() == 0 else None)
            elif now >= publish_at and (self._is_active() or not self.tells):
                publish_at = now + PUBLISH_SECONDS
                self._publish(ledger, None)
            before = len(self._arrived)
            while len(self._arrived) < self.room and (delivery := self.broker.get()) is not None:
                with self._lock:
                    self._arrived.append(delivery)
            if len(self._arrived) > before:
                self.stir()
                self._on_arrival()
            self._stirred.wait(self._tick())
            self._stirred.clear()
        self._acknowledge()

    def _is_active(self) -> bool:
        return clock.monotonic() < self._active_until

    def _tick(self) -> float:
        """Seconds until the next look at the broker, which cannot be waited for over all of kombu's transports."""
        if self._is_active():
            return TICK
        return QUIET_TICK if self.tells else IDLE_TICK

    def _publish(self, ledger: Ledger, again_after: float | None) -> None:
        for row in ledger.publish(AT_ONCE, again_after):
            with self.items.one(row.uuid):
                self.broker.publish(pointer(row))
                self.events.emit("task_published", uuid=row.uuid)
                self.stir()
        self.items.end()

    def _acknowledge(self) -> None:
        while self._settled:
            with self._lock:
                deliveries = self._held.pop(self._settled.popleft(), [])
            for delivery in deliveries:
                with self.items.one(delivery.uuid):
                    delivery.ack()
        self.items.end()

    def _forget(self) -> None:
        """What this connection had fetched comes again over the next one, or is lost and published again."""
        self.connected = False
        with self._lock:
            self._arrived.clear()
            self._held.clear()
            self._settled.clear()


def pointer(row: Row) -> dict[str, str | None]:
    """What a message holds: the row's uuid, and for a person who looks into the queue its user and key."""
    return {"uuid": row.uuid, "user": row.user, **row.key.to_dict()}

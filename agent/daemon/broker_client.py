"""The daemon's client of the broker: publishes queued rows, fetches the messages that any daemon has published,
acknowledges them.

The client is a thread with its own ledger connection, so that the supervisor can work on while a broker hangs. While
the broker cannot be reached, the supervisor polls the ledger as if no broker were configured; the client's thread tries
the broker again after growing pauses. The broker client does not decide which host works on a task; the claim of the
row decides that. `daemon/daemon.py` builds the client when `taskqueue.broker` is set.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from agent import clock
from agent.daemon.restarting_thread import RestartingThread
from agent.errors import MakimonoError
from agent.observe import log
from agent.observe.error_tolerant_loop import ItemLoop
from agent.taskqueue.broker import make_broker
from agent.wiring.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.observe.events import Events
    from agent.taskqueue import Row
    from agent.taskqueue.broker import Delivery
    from agent.taskqueue.ledger import Ledger

TICK, IDLE_TICK, QUIET_TICK = 0.1, 0.5, 5.0
"""Seconds between two polls of the broker: while messages arrive; while none arrive; and while none arrive and the
ledger sends notifications of changes."""
ACTIVE_SECONDS = 2.0
PUBLISH_SECONDS = 0.5
AGAIN_SECONDS = 30.0
"""Seconds after which a row that is still queued is published to the broker again, if no message waits in the
broker."""
SWEEP_SECONDS, IDLE_SWEEP_SECONDS = 5.0, 15.0
LONGEST_PAUSE = 30.0
AT_ONCE = 100


class BrokerClient:
    """`room` is the number of tasks that the supervisor could start now; the supervisor sets it.

    `take_arrived` returns the uuids of messages that have arrived, `acknowledge` acknowledges the messages about one
    task. The client calls `arrived` when the broker has delivered a message. `tells` is True while the ledger sends
    notifications of changes: each notification calls `wake`, and otherwise the broker is polled only rarely.
    """

    def __init__(self, settings: Settings, events: Events, arrived: Callable[[], None] = lambda: None) -> None:
        assert settings.taskqueue.broker is not None
        self.settings = settings
        self.events = events
        self.broker = make_broker(settings.taskqueue.broker, settings.plugin_guard)
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
        self.items = ItemLoop.announcing(events, "broker")
        self.thread = RestartingThread("courier", self._run, self._died)

    def start(self) -> None:
        """Start the thread of the broker client."""
        self.thread.start()

    def stop(self) -> None:
        """Stop the thread of the broker client; messages that were fetched and not acknowledged go back to the
        broker."""
        self._ended.set()
        self._stirred.set()
        self.thread.join(LONGEST_PAUSE)

    def take_arrived(self, count: int) -> list[str]:
        """At most `count` uuids of messages that have arrived; the caller acknowledges each message when its worker has
        reported or ended, or at once if the message starts no worker."""
        with self._lock:
            taken = [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]
            for delivery in taken:
                self._held.setdefault(delivery.uuid, []).append(delivery)
        return [delivery.uuid for delivery in taken]

    def acknowledge(self, uuid: str) -> None:
        """Let the client's thread acknowledge the messages about the task `uuid` that `take_arrived` has returned."""
        if uuid in self._held:
            self._settled.append(uuid)
            self._stirred.set()

    def wake(self) -> None:
        """Poll the broker at once, and often for a while, since a row may have changed."""
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
                log.mistake("broker", self.broker.where, error)
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
                # While messages wait in the broker, old rows are not published again: the broker would only have two
                # messages for one row. Rows with a lost message are published again when the broker's queue is empty.
                self._publish(ledger, AGAIN_SECONDS if self.broker.depth() == 0 else None)
            elif now >= publish_at and (self._is_active() or not self.tells):
                publish_at = now + PUBLISH_SECONDS
                self._publish(ledger, None)
            before = len(self._arrived)
            while len(self._arrived) < self.room and (delivery := self.broker.get()) is not None:
                with self._lock:
                    self._arrived.append(delivery)
            if len(self._arrived) > before:
                self.wake()
                self._on_arrival()
            self._stirred.wait(self._tick())
            self._stirred.clear()
        self._acknowledge()

    def _is_active(self) -> bool:
        return clock.monotonic() < self._active_until

    def _tick(self) -> float:
        """Seconds until the next poll of the broker; polling is necessary because not all of kombu's transports can
        wait for a message."""
        if self._is_active():
            return TICK
        return QUIET_TICK if self.tells else IDLE_TICK

    def _publish(self, ledger: Ledger, again_after: float | None) -> None:
        for row in ledger.publish(AT_ONCE, again_after):
            with self.items.handling(row.uuid):
                self.broker.publish(message_of(row))
                self.events.emit("task_published", uuid=row.uuid)
                self.wake()
        self.items.finish()

    def _acknowledge(self) -> None:
        while self._settled:
            with self._lock:
                deliveries = self._held.pop(self._settled.popleft(), [])
            for delivery in deliveries:
                with self.items.handling(delivery.uuid):
                    delivery.ack()
        self.items.finish()

    def _forget(self) -> None:
        """Drop the messages that were fetched: the broker delivers them again over the next connection, or they are
        lost and their rows are published again."""
        self.connected = False
        with self._lock:
            self._arrived.clear()
            self._held.clear()
            self._settled.clear()


def message_of(row: Row) -> dict[str, str | None]:
    """The content of a message to the broker: the uuid of the row, and user and key for people who inspect the
    queue."""
    return {"uuid": row.uuid, "user": row.user, **row.key.to_dict()}

"""Unreliable brokers; `taskqueue.broker` names one as `tests.unreliable:Loses` (contract: `BaseBroker`)."""

from collections import Counter, deque


class Delivery:
    def __init__(self, broker, uuid):
        self.uuid = uuid
        self.broker = broker

    def ack(self):
        self.broker.acknowledged(self.uuid)


class Faithful:
    where = "unreliable://"

    def __init__(self):
        self.waiting = deque()

    def connect(self):
        pass

    def publish(self, pointer):
        self.waiting.append(pointer["uuid"])

    def get(self):
        return Delivery(self, self.waiting.popleft()) if self.waiting else None

    def acknowledged(self, uuid):
        pass

    def depth(self):
        return len(self.waiting)

    def close(self):
        pass


class Loses(Faithful):
    """Loses the first message about each task."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def publish(self, pointer):
        self.seen[pointer["uuid"]] += 1
        if self.seen[pointer["uuid"]] > 1:
            super().publish(pointer)


class Repeats(Faithful):
    """Delivers every message three times, and once more after each of the first three acknowledgements."""

    def __init__(self):
        super().__init__()
        self.again = Counter()

    def publish(self, pointer):
        for _ in range(3):
            super().publish(pointer)

    def acknowledged(self, uuid):
        self.again[uuid] += 1
        if self.again[uuid] <= 3:
            self.waiting.append(uuid)


class Reorders(Faithful):
    """Delivers the newest message first."""

    def get(self):
        return Delivery(self, self.waiting.pop()) if self.waiting else None

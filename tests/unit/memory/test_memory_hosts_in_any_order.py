"""Two hosts write, forget and follow in any order, with memories of their own before: afterwards both have the same."""

import shutil
import tempfile
from pathlib import Path

import services
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from length import either
from shared_memory import contents, host, rows

from agent.config import Settings
from agent.errors import UsageError
from agent.memory import MemoryStore, NewEvent, Selector

WORDS = ("parser", "token", "port 8080", "port 8443", "not", "テスト", "slow")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
names = st.sampled_from(("a", "b"))
namespaces = st.sampled_from(("/facts/o/", "/episodes/o/s1/", "/preferences/p/"))
tokens = st.one_of(st.none(), st.integers(0, 6).map(str))
number = st.integers(0, 99)


class TwoHosts(RuleBasedStateMachine):
    """`a` and `b` share a log; each may be alone for a while, with the ledger of one machine."""

    def __init__(self):
        super().__init__()
        services.need_postgres()
        self.folder = Path(tempfile.mkdtemp())
        self.schema = services.schema(self.folder)
        self.address = self.schema.__enter__()
        self.stores = {}
        self.forgotten = set()

    @initialize(alone=st.sets(names))
    def begin(self, alone):
        for name in ("a", "b"):
            self.open(name, alone=name in alone)

    def open(self, name, *, alone):
        if name in self.stores:
            self.stores[name].close()
        place = self.folder / name
        self.stores[name] = MemoryStore(place, Settings().memory, who=name) if alone else host(place, self.address)

    def is_alone(self, name):
        return self.stores[name].shared is None

    @rule(name=names)
    def changes_its_ledger(self, name):
        self.open(name, alone=not self.is_alone(name))

    @rule(name=names, said=st.lists(st.tuples(st.sampled_from(("s1", "s2")), texts, tokens), min_size=1, max_size=9))
    def says(self, name, said):
        self.stores[name].create_events(
            [NewEvent("o", session, text, client_token=token) for session, text, token in said]
        )

    @rule(name=names, namespace=namespaces, text=texts, source=number, bad=st.booleans())
    def learns(self, name, namespace, text, source, bad):
        store = self.stores[name]
        events = [hit.event_id for hit in store.search_events(text, "o")][: source % 3]
        records = [one.id for one in store.list_memory_records("/", status=None)][-1:] if source % 5 == 0 else []
        try:
            store.create_memory_record(
                namespace,
                text,
                strategy=namespace.split("/")[1],
                event_ids=events,
                record_ids=records,
                files=[f"{source}.py"],
                quarantine="looks like a command" if bad and source % 4 == 0 else "",
            )
        except UsageError:
            pass  # the other host has forgotten a source: nothing changed

    @rule(name=names, which=st.sampled_from(("promote", "pin", "invalidate", "used", "judged")), at=number)
    def changes(self, name, which, at):
        store = self.stores[name]
        found = store.list_memory_records("/", status=None)
        if not found:
            return
        record = found[at % len(found)].id
        try:
            {
                "promote": lambda: store.promote(record, trust=2),
                "pin": lambda: store.pin(record, pinned=at % 2 == 0),
                "invalidate": lambda: store.invalidate(record, "no longer"),
                "used": lambda: store.mark_used([record]),
                "judged": lambda: store.mark_outcome([record], helped=at % 2 == 0),
            }[which]()
        except UsageError:
            pass  # it is active already: nothing changed

    @rule(name=names, word=st.sampled_from(WORDS), session=st.sampled_from((None, "s1")))
    def forgets(self, name, word, session):
        self.stores[name].forget(Selector(match=word, session=session), dry_run=False)

    @rule(name=names)
    def follows(self, name):
        self.stores[name].follow()

    @rule(name=names)
    def is_made_again(self, name):
        store = self.stores[name]
        store.follow()
        before = contents(store)
        store.rebuild()
        assert contents(store) == before

    @rule(name=names)
    def loses_its_file(self, name):
        if not self.is_alone(name) and not self.stores[name].log_status()["own"]:
            self.stores[name].close()
            shutil.rmtree(self.folder / name)

    @invariant()
    def no_token_is_there_twice(self):
        for store in self.stores.values():
            found = [event["client_token"] for event in contents(store)["events"] if event["client_token"]]
            assert len(found) == len(set(found))

    def teardown(self):
        try:
            for name in list(self.stores):
                self.open(name, alone=False)
            for name in ("a", "b", "a") if self.stores else ():
                self.stores[name].follow()
            if self.stores:
                first, second = (contents(self.stores[name]) for name in ("a", "b"))
                assert first == second
                assert [row["number"] for row in rows(self.address)] == [row["number"] for row in first["log"]]
                self.stores["a"].rebuild()
                assert contents(self.stores["a"]) == second
        finally:
            for store in self.stores.values():
                store.close()
            self.schema.__exit__(None, None, None)
            shutil.rmtree(self.folder, ignore_errors=True)


TestTwoHosts = TwoHosts.TestCase
TestTwoHosts.settings = settings(
    max_examples=either(12, 200),
    stateful_step_count=either(14, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

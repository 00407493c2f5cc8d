"""Hosts that share one memory: stores in folders of their own, with one log in PostgreSQL."""

from functools import partial

from agent.config import Settings
from agent.memory import MemoryStore, SharedPlace
from agent.store.postgres_memory_log import open_memory_log

TABLES = ("log", "events", "records", "sources", "record_files", "tombstones")
INDEXES = tuple(f"{kind}_{part}s" for kind in ("event", "record") for part in ("turn", "window", "session"))


def place(address):
    return SharedPlace("a test's log", partial(open_memory_log, address))


def host(folder, address, **more):
    """The store of one host."""
    return MemoryStore(folder, Settings().memory, shared=place(address), who=f"a test on {folder.name}", **more)


def contents(store, tables=TABLES):
    """Every row of every table that is made from the log, the copy of the log, and every term of every index with its
    place."""
    db = store._open.database
    found = {name: db.execute(f"SELECT * FROM memory_{name} ORDER BY 1, 2") for name in tables}
    for name in INDEXES:
        db.execute(f"CREATE VIRTUAL TABLE temp.seen USING fts5vocab(main, memory_{name}, 'instance')")
        found[name] = db.execute('SELECT doc, "offset", term FROM temp.seen ORDER BY doc, "offset"')
        db.execute("DROP TABLE temp.seen")
    return found


def rows(address):
    """The entries of the shared log, as PostgreSQL has them."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(address, row_factory=dict_row) as connection:
        return connection.execute(
            "SELECT number, at, operation, subject, who, reason, payload FROM memory_log ORDER BY number"
        ).fetchall()


def file_bytes(address):
    """The bytes of the tables of the log and of the jobs on the server, with what is stored beside them."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        found = connection.execute(
            """SELECT pg_read_binary_file(pg_relation_filepath(oid)) FROM pg_class
            WHERE oid IN (SELECT reltoastrelid FROM pg_class WHERE oid IN ('memory_log'::regclass, 'memory_jobs'::regclass))
                OR oid IN ('memory_log'::regclass, 'memory_jobs'::regclass)
                OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'memory_log'::regclass)"""
        ).fetchall()
    return b"".join(bytes(one[0]) for one in found)

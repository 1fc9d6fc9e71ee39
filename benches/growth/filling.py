"""Fills a ledger with more calls than anybody can wait for.

Nothing here knows how a call is stored. callgate itself makes one settled call and one dead letter;
their rows are then copied, with everything that has to differ from row to row replaced, in one
`INSERT .. SELECT` per table. Columns that a later schema adds are copied like all others.
"""

import sqlite3
import time

DAY_MS = 24 * 3600 * 1000
# Bodies of the copies, in bytes, so that ten million fit on a small disk. An index knows no body.
BODY_BYTES = 64
CHUNK = 100_000


def columns(db, table):
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def copy(db, table, where, replaced, first, count):
    """`count` copies of one row; `i` in an expression is the copy's number."""
    names = columns(db, table)
    unknown = set(replaced) - set(names)
    if unknown:
        raise SystemExit(f"growth: {table} has no {unknown}: adapt filling.py to the schema")
    values = ", ".join(replaced.get(name, f"t.{name}") for name in names)
    db.execute(
        f"WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n "
        f"WHERE i + 1 < {first + count}) "
        f"INSERT INTO {table} ({', '.join(names)}) "
        f"SELECT {values} FROM n CROSS JOIN (SELECT * FROM {table} WHERE {where}) t")


def number_of(db, table):
    return db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]


class Filler:
    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = OFF")
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("PRAGMA cache_size = -1000000")
        self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
        # A trigger looks for what a fresh copy cannot have; ten million times.
        self.triggers = self.db.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        self.settled = self.one("state = 'SUCCESS'")
        self.parked = self.one("parked = 1 AND purge_at IS NULL")

    def one(self, where):
        found = self.db.execute(f"SELECT max(id) FROM calls WHERE {where}").fetchone()[0]
        if found is None:
            raise SystemExit(f"growth: no call with {where} to copy")
        return found

    def calls(self, count, ripe_in_ms):
        """Settled calls that expire `ripe_in_ms` from now, or did, when it is negative."""
        now = int(time.time() * 1000)
        base = number_of(self.db, "calls")
        replaced = {
            "id": f"{base} + i + 1",
            "call_id": f"printf('grown-%012d-versus', {base} + i)",
            "fingerprint": "randomblob(32)",
            "touched_at": f"{now + ripe_in_ms} - t.window_ms",
            "purge_at": str(now + ripe_in_ms),
            **self.small(),
        }
        reply = {"call": f"{base} + i + 1", "kept_body": f"zeroblob({BODY_BYTES})"}

        def insert(first, part):
            copy(self.db, "calls", f"id = {self.settled}", replaced, first, part)
            copy(self.db, "replies", f"call = {self.settled}", reply, first, part)

        self.insert(count, insert)
        return base

    def dead_letters(self, count):
        """Calls in the compensation queue, due in a day, with their history."""
        due = int(time.time() * 1000) + DAY_MS
        base = number_of(self.db, "calls")
        mine = f"call = {self.parked}"
        identity = {"call_id": f"printf('dead-%012d-versus', {base} + i)"}
        call = {"id": f"{base} + i + 1", "fingerprint": "randomblob(32)", **identity,
                **self.small()}
        letter = {"call": f"{base} + i + 1", "next_retry_time": f"{due} + i % 3600000",
                  "state": "'QUEUED'", "owner": "NULL", "lease_until": "NULL", **identity}

        def insert(first, part):
            copy(self.db, "calls", f"id = {self.parked}", call, first, part)
            copy(self.db, "history", mine, {"call": f"{base} + i + 1"}, first, part)
            copy(self.db, "dead_letter", mine, letter, first, part)

        self.insert(count, insert)

    def small(self):
        body = f"zeroblob({BODY_BYTES})"
        return {"request_body": body,
                "reply_body": f"CASE WHEN t.reply_body IS NULL THEN NULL ELSE {body} END"}

    def insert(self, count, chunk):
        self.db.execute("BEGIN")
        for name, _ in self.triggers:
            self.db.execute(f"DROP TRIGGER {name}")
        for first in range(0, count, CHUNK):
            chunk(first, min(CHUNK, count - first))
        for _, sql in self.triggers:
            self.db.execute(sql)
        self.db.execute("COMMIT")

    def close(self):
        self.db.execute("PRAGMA locking_mode = NORMAL")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.close()

"""Who is working on what: claims in a small SQLite file, so that no run is done twice at the same time.

A worker holds a claim while it works, and says every few seconds that it still lives. A claim whose worker is dead, or
has not been heard of for a while, can be taken by another. SQLite makes taking a claim one step that either happens or
not, whoever else tries; it is part of Python.
"""

import hashlib
import os
import platform
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BEAT, STALE = 5.0, 90.0  # seconds between signs of life, and without one before a worker counts as gone


def machine_mark() -> str:
    """Tells machines apart without naming them."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:12]


def lives(machine: str, process: int, beat: float, stale: float = STALE) -> bool:
    """Whether a worker is still at work, as far as one can tell from here."""
    if time.time() - beat > stale:
        return False
    if machine != machine_mark() or os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass
class Claim:
    """One run held by this worker. `release` it when the work is done or given up."""

    claims: "Claims"
    identity: str
    token: str
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> "Claim":
        threading.Thread(target=self._keep, daemon=True).start()
        return self

    def release(self) -> None:
        self._stop.set()
        with self.claims.connection() as c:
            c.execute("DELETE FROM claims WHERE identity = ? AND token = ?", (self.identity, self.token))

    def _keep(self) -> None:
        while not self._stop.wait(self.claims.beat):
            with self.claims.connection() as c:
                c.execute("UPDATE claims SET beat = ? WHERE token = ?", (time.time(), self.token))


class Claims:
    """The claims in a file."""

    def __init__(self, path: Path, *, beat: float = BEAT, stale: float = STALE) -> None:
        self.path, self.beat, self.stale = path, beat, stale
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.connection() as c:
            c.execute(
                "CREATE TABLE IF NOT EXISTS claims"
                " (identity TEXT PRIMARY KEY, token TEXT, machine TEXT, process INTEGER, beat REAL)"
            )

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction of its own, which excludes all others."""
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as c:
            c.execute("BEGIN IMMEDIATE")
            try:
                yield c
            except BaseException:
                c.execute("ROLLBACK")
                raise
            c.execute("COMMIT")

    def take(self, identity: str) -> Claim | None:
        """The claim on a run; None if somebody who lives has it."""
        token = uuid.uuid4().hex
        with self.connection() as c:
            row = c.execute("SELECT machine, process, beat FROM claims WHERE identity = ?", (identity,)).fetchone()
            if row is not None and lives(*row, stale=self.stale):
                return None
            values = (identity, token, machine_mark(), os.getpid(), time.time())
            c.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)", values)
        return Claim(self, identity, token).start()

    def held(self) -> set[str]:
        """What is claimed by somebody who lives."""
        with self.connection() as c:
            rows = c.execute("SELECT identity, machine, process, beat FROM claims").fetchall()
        return {identity for identity, *worker in rows if lives(*worker, stale=self.stale)}

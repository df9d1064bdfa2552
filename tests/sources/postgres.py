"""A real PostgreSQL server for tests, in a temporary folder; Debian's package `postgresql` has it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

QUICK = (
    *("fsync=off", "full_page_writes=off", "synchronous_commit=off", "shared_buffers=16MB", "max_connections=30"),
    "autovacuum=off",
)
LEAN = """
DROP SCHEMA information_schema CASCADE;
SET allow_system_table_mods = on;
DO $$ DECLARE unused name; BEGIN
    FOR unused IN SELECT relname FROM pg_class WHERE relkind = 'v' AND relnamespace = 'pg_catalog'::regnamespace
            AND relname <> 'pg_stat_activity' LOOP
        EXECUTE format('DROP VIEW IF EXISTS pg_catalog.%I CASCADE', unused);
    END LOOP;
END $$;
"""
"""Said by the owner, it makes connections cheap: ADBC reads the whole catalogue for each, which takes it 45 ms."""
USER, PASSWORD = "reader", "geheim&42"
RULES = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
"""By TCP everybody but the owner needs a password."""


class Server(NamedTuple):
    folder: str
    port: int

    @property
    def owner(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{PASSWORD.replace('&', '%26')}@127.0.0.1:{self.port}/postgres"

    @property
    def by_socket(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}&port={self.port}"


def program(name: str) -> str | None:
    """PostgreSQL's programs are not on the path where Debian puts them."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(found[-1]) if found else shutil.which(name)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """The server, while this lasts. It refuses to be root, so then it is nobody."""
    folder = tempfile.mkdtemp(prefix="feedline-pg-")
    user = "nobody" if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    process = None
    try:
        data = f"{folder}/data"
        made = [program("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, user=user, cwd=folder)
        subprocess.run(
            ["tee", f"{data}/pg_hba.conf"], input=RULES, text=True, check=True, capture_output=True, user=user
        )
        process, port = _started(folder, data, user)
        yield Server(folder, port)
    finally:
        if process is not None:
            process.send_signal(signal.SIGQUIT)  # at once: nobody wants the data any more
            process.communicate(timeout=300)
        shutil.rmtree(folder)


def _started(folder: str, data: str, user: str | None) -> tuple[subprocess.Popen[str], int]:
    for _ in range(5):  # another program may take the port first
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        # Only what is told of the server itself, so that the pipe is never full.
        settings = (*QUICK, f"port={port}", "listen_addresses=127.0.0.1", "log_min_messages=log", "TimeZone=UTC")
        command = [program("postgres"), "-D", data, "-k", folder, *(part for each in settings for part in ("-c", each))]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, user=user, cwd=folder)
        assert process.stderr is not None
        for line in process.stderr:
            if "ready to accept connections" in line:
                return process, port
        process.communicate()
    raise RuntimeError("PostgreSQL does not start")

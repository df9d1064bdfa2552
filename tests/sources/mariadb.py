"""A real MariaDB server for tests, in a temporary folder; Debian's package `mariadb-server-core` has it.

It speaks MySQL's protocol and knows MySQL's SQL; MySQL itself is neither in Debian nor on PyPI.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")
SMALL = (
    *("--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M", "--innodb-data-file-path=ibdata1:5M:autoextend"),
    *("--innodb-temp-data-file-path=ibtmp1:3M:autoextend", "--skip-innodb-doublewrite", "--log-warnings=0"),
    "--innodb-flush-log-at-trx-commit=0",
)
USER, PASSWORD = "reader", "geheim&42"
OWNER = (
    "CREATE USER owner@'%'; GRANT ALL ON *.* TO owner@'%' WITH GRANT OPTION; CREATE DATABASE shop CHARACTER SET utf8mb4"
)


class Server(NamedTuple):
    folder: str
    port: int

    @property
    def owner(self) -> str:
        return f"mysql://owner@127.0.0.1:{self.port}/shop"

    @property
    def url(self) -> str:
        return f"mysql://{USER}:{PASSWORD.replace('&', '%26')}@127.0.0.1:{self.port}/shop"

    @property
    def by_socket(self) -> str:
        return f"mysql://{USER}:{PASSWORD.replace('&', '%26')}@/shop?unix_socket={self.folder}/socket"


def program() -> str | None:
    """The server; None if it is not installed, or was packed in another way."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return found if TABLES.is_file() else None


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """The server, while this lasts. It refuses to be root, so then it is nobody."""
    folder = tempfile.mkdtemp(prefix="feedline-my-")
    user = "nobody" if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    process = None
    try:
        command = [str(program()), "--no-defaults", f"--datadir={folder}", f"--tmpdir={folder}", *SMALL]
        subprocess.run(
            [*command, "--bootstrap"],
            input=f"CREATE DATABASE mysql;\nUSE mysql;\n{TABLES.read_text()}",
            text=True,
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        Path(folder, "init.sql").write_text(OWNER.replace("; ", ";\n") + ";\n")
        process, port = _started([*command, f"--init-file={folder}/init.sql"], folder, user)
        yield Server(folder, port)
    finally:
        if process is not None:
            process.kill()  # nobody wants the data any more
            process.communicate(timeout=300)
        shutil.rmtree(folder)


def _started(command: list[str], folder: str, user: str | None) -> tuple[subprocess.Popen[str], int]:
    for _ in range(5):  # another program may take the port first
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        where = ("--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder}/socket", "--skip-name-resolve")
        process = subprocess.Popen([*command, *where], stderr=subprocess.PIPE, text=True, user=user, cwd=folder)
        assert process.stderr is not None
        for line in process.stderr:
            if "ready for connections" in line:
                return process, port
        process.communicate()
    raise RuntimeError("MariaDB does not start")

"""A file that gets its name only when it is whole.

Takes: the path that it shall have. Gives: another file in the same folder to write to, for `os.replace` in the end.
Promises: that one is new, and may be read and written by whoever the umask (or the folder's default ACL) lets read and
write any new file. (`tempfile` makes files for their owner alone, and a mode set afterwards ignores the umask, which
cannot be asked for without changing it for all threads.)
Not its job: finishing or removing it (writer, index).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import BinaryIO, cast


def unfinished(path: Path) -> tuple[BinaryIO, Path]:
    """An open file, and where it is until it is whole."""
    where = path.parent / f".{path.name}.{secrets.token_hex(8)}.unfinished"
    descriptor = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    return cast(BinaryIO, open(descriptor, "wb")), where

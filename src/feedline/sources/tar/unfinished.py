"""A file that gets its final name only when it is complete.

Takes: the final path. Gives: another file in the same folder to write to, for `os.replace` at the end.
Promises: that file is new, and has the permissions that the umask (or the folder's default ACL) gives any new file.
(`tempfile` makes files for their owner alone; a mode set afterwards ignores the umask, which cannot be read without
changing it for all threads.)
Not its job: finishing or removing it (writer, index).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import BinaryIO, cast


def unfinished(path: Path) -> tuple[BinaryIO, Path]:
    """An open file, and its path until it is complete."""
    where = path.parent / f".{path.name}.{secrets.token_hex(8)}.unfinished"
    descriptor = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    return cast(BinaryIO, open(descriptor, "wb")), where

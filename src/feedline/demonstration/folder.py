"""The folder that the demo writes to, and to nowhere else.

Takes: the path that the user named. Gives: `Folder`, with the path of each file.
Promises: a folder that holds other things than a demo's is refused and left as it is; so is one that cannot be written
to. What an older version of the demo has left is taken over.
Not its job: what is in the files (images, training).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from feedline.errors import OptionError

_MARK = "Everything in this folder was made by `feedline demo`, which may delete it or write it anew. So may you.\n"


class Folder:
    """Where everything is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.images = path / "images"
        self.metadata = path / "metadata.sqlite"
        self.unfinished = path / "metadata.unfinished"
        self.state = path / "state.json"
        self.report = path / "report.html"
        self.mark = path / "README.txt"

    def claim(self) -> None:
        """Make it, or see that it is a demo's; OptionError if it cannot be used."""
        with self.writing():
            if self.path.exists() and not self.path.is_dir():
                raise OptionError(f"folder must be a folder, but {self.path} is a file")
            if self.path.exists() and any(self.path.iterdir()) and not self._is_ours():
                raise OptionError(
                    f"folder must be new, empty or left by an earlier demo, but {self.path} holds other things: "
                    "name another one with --folder"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            self.mark.write_text(_MARK)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """What the system refuses in here is the folder's fault, and an OptionError."""
        try:
            yield
        except OSError as error:
            raise OptionError(f"folder must be one that can be written to, but {self.path} is not: {error}") from error

    def _is_ours(self) -> bool:
        if self.mark.is_file():
            return self.mark.read_text(errors="replace") == _MARK
        return self.metadata.is_file() and _is_of_first_version(self.metadata)


def _is_of_first_version(metadata: Path) -> bool:
    """The first version left no mark, but its metadata is like no other."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(metadata)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()
        columns = [column[1] for column in connection.execute("PRAGMA table_info(images)")]
        return version == (1,) and columns == ["id", "path", "label", "split"]
    return False

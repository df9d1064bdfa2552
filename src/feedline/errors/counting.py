"""Numbers with the noun for what is counted.

Takes: a number and a noun. Gives: both, in the singular or plural that fits. Not its job: sentences.
"""

from __future__ import annotations


def counted(count: int, word: str) -> str:
    """A number and what it counts.

    >>> counted(1, "batch"), counted(2, "batch"), counted(1200, "sample"), counted(0, "try")
    ('1 batch', '2 batches', '1,200 samples', '0 tries')
    """
    return f"{count:,} {word if count == 1 else several(word)}"


def several(word: str) -> str:
    """The plural of a noun.

    >>> several("class"), several("batch"), several("epoch"), several("entry")
    ('classes', 'batches', 'epochs', 'entries')
    """
    if word.endswith(("s", "tch", "sh", "x")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"

"""Warnings that point to the line of the user's loop, because that is where the user can act.

Takes: a text. Gives: a warning. Promises: feedline's own lines are skipped; if warnings are errors, a warning given in
another thread is printed instead of being lost. Not its job: the sentences, and giving each only once (session).
"""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def tell(message: str) -> None:
    """Warn at the line of the user's loop."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)


def tell_of(message: str, frame: FrameType) -> None:
    """Warn about another thread, at the line of its loop. If warnings are errors, print: nobody would catch it here."""
    at: FrameType | None = frame
    while at is not None and not at.f_code.co_filename.startswith(_PACKAGE):  # the dataset
        at = at.f_back
    while at is not None and at.f_code.co_filename.startswith(_PACKAGE):
        at = at.f_back
    at = at or frame
    try:
        warnings.warn_explicit(message, UserWarning, at.f_code.co_filename, at.f_lineno)
    except UserWarning:
        print(f"UserWarning: {message}", file=sys.stderr)

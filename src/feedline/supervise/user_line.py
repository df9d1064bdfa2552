"""Warnings as if from the line of the user's loop: that is where they can do something about it.

Takes: a text. Gives: a warning. Promises: feedline's own lines are passed over; where warnings are errors, one that is
said in another thread is printed instead of being lost. Not its job: the sentences, and saying each once (session).
"""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def tell(message: str) -> None:
    """Warn, as if from the line of the user's loop."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)


def tell_of(message: str, frame: FrameType) -> None:
    """Warn of another thread, as if from the line of its loop. Where warnings are errors, nobody here would see it."""
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

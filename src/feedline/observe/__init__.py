"""Seeing what a loader does: counted always (meter), written down span by span when asked (recording)."""

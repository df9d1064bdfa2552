"""Seeing what a loader does: counts are always kept (meter), single spans only on request (recording)."""

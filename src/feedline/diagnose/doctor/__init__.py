"""The doctor: examines a dataset or loader, and says what is wrong, why, and what to change.

patient (what is examined) → examine (reads, in worker processes: probe, fields, lines, seeding) → evidence (plain data)
→ checks by topic (pure functions from evidence to findings) → consult (all of it, in order).
"""

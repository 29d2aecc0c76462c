"""Pure reconciliation: ``decide(observed, now) -> Decision``, builders, status, conditions.

No I/O and no clock: everything observed is a value, everything to be done is a value.
"""

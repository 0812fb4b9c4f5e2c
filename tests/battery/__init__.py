"""Attacks on runs and files that can be repeated: `python -m tests.battery`.

A part is a module with `run(share, seed) -> Iterator[Tally]`; it stands in `PARTS` of `__main__`.
"""

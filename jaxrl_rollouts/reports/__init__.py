"""Reports of runs: tables with intervals, claims with their verdicts,
pictures.
"""

"""What a run shows: a report of tables with intervals, claims with their verdicts,
pictures.
"""

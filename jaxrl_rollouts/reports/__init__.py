"""What a run shows: a report of tables with intervals, claims judged by their numbers,
pictures.
"""

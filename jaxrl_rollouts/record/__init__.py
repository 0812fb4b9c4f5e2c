"""What a run leaves on disk, so that it can be resumed and reported: folder, checkpoints,
history, metrics.
"""

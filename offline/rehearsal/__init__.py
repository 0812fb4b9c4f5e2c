"""Continual offline learning: tasks one after the other, of which a small buffer is kept."""

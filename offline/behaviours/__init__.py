"""Policies to collect data with, and the datasets that are made on the spot."""

"""Benchmarks beside the programs of others, each in an interpreter of its own."""

"""World models of a dataset: fitted, rolled, evaluated, with thresholds of their uncertainty,
saved.
"""

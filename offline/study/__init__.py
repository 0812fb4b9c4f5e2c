"""From a dataset and a method to a trained, evaluated and saved policy."""

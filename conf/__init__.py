"""Choices for the Hydra application of experiments/run.py; defaults live in the dataclasses they name."""

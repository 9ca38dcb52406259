"""Figures of the reproduction, of the SDE and of the benchmark."""

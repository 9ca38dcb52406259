"""Attacks: published methods that score every candidate from the answers of models. Pure functions."""

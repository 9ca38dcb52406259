"""Timings, and the studies behind the pages: scripts, each run as ``python -m benchmarks.NAME``."""

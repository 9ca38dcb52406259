"""Sections of the report that follow what it says of leakage; each registers itself."""

"""See the module names: each answers one question."""

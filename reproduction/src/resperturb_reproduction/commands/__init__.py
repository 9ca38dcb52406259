"""The commands that this package adds to ``resperturb`` by entry points."""

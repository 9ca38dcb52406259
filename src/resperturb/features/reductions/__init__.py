"""The built-in reductions of features, one file each."""

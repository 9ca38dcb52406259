"""The built-in feature extractors, one file each."""

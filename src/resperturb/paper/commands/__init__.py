"""The commands ``reproduce``, ``sde`` and ``bench``, which the command line adds to its own."""

"""The reproduction of the paper, its pictures, the studies and the benchmark: users of the library like any other."""

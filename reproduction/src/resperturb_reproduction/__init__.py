"""The reproduction of the paper: its tables and figures, its SDE pictures, its assumptions and Theorem 3."""

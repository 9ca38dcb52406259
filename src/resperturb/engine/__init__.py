"""Many trainings at once: in processes of this machine or on a Ray cluster."""

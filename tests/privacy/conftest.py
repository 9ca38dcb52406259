from hypothesis import settings

# How long an example takes depends on the machine, not on the code.
settings.register_profile("privacy", deadline=None)
settings.load_profile("privacy")

"""The paper's tables and figures as declarations, and the machinery that measures them.

``declarations`` says what the paper shows, ``presets`` at which size it is repeated, ``plan`` which trainings that
takes, ``runner`` does them, ``measures`` reads off them, ``results`` keeps what came out, ``page`` writes it up.
"""

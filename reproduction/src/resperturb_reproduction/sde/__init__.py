"""The continuous picture: an image pushed through the ODE and the SDEs behind a residual network, and back."""

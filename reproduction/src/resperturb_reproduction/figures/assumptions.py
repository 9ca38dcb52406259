"""The quantile plot of a network's residual sums against a normal distribution."""

from typing import TYPE_CHECKING

from resperturb_reproduction.assumptions import MeasuredAssumptions
from resperturb_reproduction.figures.style import COLUMN, GREY, PALETTE, paper_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def quantile_figure(measured: MeasuredAssumptions) -> "Figure":
    """Draw each junction's standardised outputs against normal quantiles; normal ones lie on the line."""
    import matplotlib.pyplot as plt

    with paper_style():
        figure, axes = plt.subplots(figsize=(COLUMN, COLUMN))
        axes.plot([-3, 3], [-3, 3], color=GREY, linewidth=0.8, label="normal")
        for number, output in enumerate(measured.outputs):
            if output.quantiles:
                expected, seen = zip(*output.quantiles, strict=True)
                label = f"{output.junction} ({output.rejected:.0%} rejected)"
                axes.plot(expected, seen, ".", color=PALETTE[number % len(PALETTE)], label=label)
        axes.set(xlabel="normal quantile", ylabel="quantile of the outputs", title="Are the residual sums normal?")
        axes.legend()
    return figure

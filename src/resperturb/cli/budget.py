"""``resperturb budget``: what can be proven, and the noise that a proof needs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit
from resperturb.errors import UsageError

if TYPE_CHECKING:
    from resperturb.privacy.guarantee import Guarantee

Epsilon = Annotated[float | None, typer.Option(help="Instead of the noise: the epsilon that it is to give.")]
Delta = Annotated[float, typer.Option(help="The delta of (epsilon, delta): far below one over the records.")]
Epochs = Annotated[float | None, typer.Option(help="Passes over the data.")]
Steps = Annotated[int | None, typer.Option(help="Instead of the epochs: steps, with batch size and records.")]

budget_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Say which epsilon can be proven, what it protects, what it assumes, and whether it means anything.",
)


@budget_app.command("additive")
def budget_additive(
    radius: Annotated[float, typer.Option(help="Largest norm of an image as the network receives it.")],
    gamma: Annotated[
        float | None, typer.Option(help="Noise in every block; the input has half of it unless you say otherwise.")
    ] = None,
    input_std: Annotated[float | None, typer.Option(help="Standard deviation of the input noise.")] = None,
    epsilon: Epsilon = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: Annotated[int | None, typer.Option(help="Records in a batch.")] = None,
    records: Annotated[int | None, typer.Option(help="Records in the training set.")] = None,
    delta: Delta = 1e-5,
    networks: Annotated[int, typer.Option(help="Networks in the ensemble; each noises the images itself.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """The additive strategy: the exact bound of the input noise.

    Example: `resperturb budget additive --gamma 0.5 --radius 30 --epochs 100 --delta 1e-5`
    """
    from resperturb.privacy.additive import additive_guarantee, calibrate_additive
    from resperturb.privacy.length import training_length

    length = training_length(epochs, steps, batch_size, records)
    if input_std is None and gamma is not None:
        input_std = gamma / 2
    if _one_of(input_std, epsilon, "--gamma or --input-std") is None:
        assert epsilon is not None
        found = calibrate_additive(epsilon=epsilon, delta=delta, length=length, radius=radius, networks=networks)
        std = found.details["input_std"]
        share = std / radius
        needed = f"Needed: input noise {std:.6g}, on each pixel {share:.3g} times the norm of an image."
    else:
        assert input_std is not None
        needed = ""
        found = additive_guarantee(input_std=input_std, radius=radius, length=length, delta=delta, networks=networks)
    _show(found, as_json, needed)


@budget_app.command("dpsgd")
def budget_dpsgd(
    batch_size: Annotated[int, typer.Option(help="Mean size of a Poisson-sampled batch.")],
    records: Annotated[int, typer.Option(help="Records in the training set.")],
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise over the clipping norm.")] = None,
    epsilon: Epsilon = None,
    epochs: Epochs = None,
    steps: Annotated[int | None, typer.Option(help="Instead of the epochs.")] = None,
    delta: Delta = 1e-5,
    as_json: JsonOption = False,
) -> None:
    """DP-SGD with Poisson-sampled batches.

    Example: `resperturb budget dpsgd --noise-multiplier 1.1 --batch-size 128 --records 12500 --epochs 100`
    """
    from resperturb.privacy.dpsgd import calibrate_dpsgd, dpsgd_guarantee
    from resperturb.privacy.length import training_length

    length = training_length(epochs, steps, batch_size, records)
    if _one_of(noise_multiplier, epsilon, "--noise-multiplier") is None:
        assert epsilon is not None
        found = calibrate_dpsgd(epsilon=epsilon, delta=delta, length=length)
        _show(found, as_json, f"Needed: a noise multiplier of {found.details['noise_multiplier']:.6g}.")
    else:
        assert noise_multiplier is not None
        _show(dpsgd_guarantee(noise_multiplier=noise_multiplier, length=length, delta=delta), as_json)


@budget_app.command("dp-head")
def budget_head(
    epsilon: Annotated[float, typer.Option(help="The epsilon that the head is to give.")],
    records: Annotated[int, typer.Option(help="Records in the training set, or patients.")],
    unit: Annotated[
        str, typer.Option(help="What is protected as a whole: record, or what a group is called.")
    ] = "record",
    classes: Annotated[int, typer.Option(min=2, help="Number of classes of the head.")] = 2,
    delta: Delta = 1e-5,
    as_json: JsonOption = False,
) -> None:
    """A DP head on public features.

    Example: `resperturb budget dp-head --epsilon 3 --records 2924 --unit patient`
    """
    from resperturb.privacy.dp_head import head_guarantee, head_mu, too_few

    found = head_guarantee(mu=head_mu(epsilon, delta), delta=delta, head="any head", records=records, unit=unit)
    _show(found, as_json, too_few(records, found.details["mu"], unit, classes))


def _one_of(noise: float | None, epsilon: float | None, option: str) -> float | None:
    """Return the noise; it is None if epsilon is given instead."""
    if (noise is None) == (epsilon is None):
        raise UsageError(f"give either the noise ({option}) or the --epsilon that it is to give.")
    return noise


def _show(budget: "Guarantee", as_json: bool, needed: str = "") -> None:
    values = budget.to_dict()

    def show(console: Any) -> None:
        from rich.text import Text

        colours = {"meaningful": "bold green", "weak": "bold yellow", "vacuous": "bold red"}
        text = Text(str(budget))
        text.highlight_words([budget.level.upper() + ":"], colours[budget.level])
        if needed:
            console.print(needed + "\n", markup=False)
        console.print(text)
        if budget.level == "vacuous":
            console.print(
                "\nThis does not say that the model leaks, only that nothing is proven. What attacks find: "
                "`resperturb audit RUN`.\nThe noise that a useful guarantee needs: `resperturb budget dpsgd "
                "--epsilon 8` or `resperturb budget additive --epsilon 8`.",
                markup=False,
            )

    emit({**values.pop("details"), **values}, as_json, show)

"""``resperturb budget`` and ``resperturb calibrate``: what can be proven, and the noise a proof needs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb.privacy.additive import AdditiveGuarantee
    from resperturb.privacy.guarantee import Guarantee

Gamma = Annotated[float, typer.Option(help="Standard deviation of the noise in every block.")]
Epsilon = Annotated[float, typer.Option(help="The epsilon to reach.")]
Delta = Annotated[float, typer.Option(help="The delta of (epsilon, delta): far below one over the records.")]
Epochs = Annotated[float | None, typer.Option(help="Passes over the data.")]
Steps = Annotated[int | None, typer.Option(help="Instead of the epochs: steps, with batch size and records.")]
BatchSize = Annotated[int | None, typer.Option(help="Records in a batch.")]
Records = Annotated[int | None, typer.Option(help="Records in the training set.")]
Radius = Annotated[float, typer.Option(help="Largest norm of an image as the network receives it (the paper's R).")]
BlockBound = Annotated[
    float | None,
    typer.Option(help="Largest norm of a block's mean output (the paper's G). [default: the radius]"),
]
Networks = Annotated[int, typer.Option(help="Networks in the ensemble; each noises the images itself.")]
MappingBound = Annotated[float, typer.Option(help="Largest norm of a residual mapping (the paper's B).")]
Floor = Annotated[float, typer.Option(help="Least feature magnitude the noise multiplies (the paper's eta).")]
WeightNorm = Annotated[float, typer.Option(help="Largest norm of the last layer's weights (the paper's a).")]
Blocks = Annotated[int, typer.Option(help="Residual blocks (the paper's M).")]
Queries = Annotated[int, typer.Option(help="Noise draws that are answered in all.")]

budget_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Say which epsilon can be proven, what it protects, what it assumes, and whether it means anything.",
)
calibrate_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Say how much noise a wanted epsilon needs.",
)


def register(app: typer.Typer) -> None:
    """Add both groups of commands."""
    app.add_typer(budget_app, name="budget")
    app.add_typer(calibrate_app, name="calibrate")


@budget_app.command("additive")
def budget_additive(
    gamma: Gamma,
    radius: Radius,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    records: Records = None,
    delta: Delta = 1e-5,
    input_std: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise on the input. [default: half of gamma, as the paper]"),
    ] = None,
    bound: BlockBound = None,
    networks: Networks = 1,
    blocks: Annotated[int | None, typer.Option(help="Also print Theorem 1's budgets of so many blocks.")] = None,
    lam: Annotated[float | None, typer.Option("--lambda", help="Theorem 1's lambda. [default: the best one]")] = None,
    as_json: JsonOption = False,
) -> None:
    """The additive strategy: Theorem 1 as printed, and the exact bound that really holds.

    Example: `resperturb budget additive --gamma 0.5 --radius 30 --epochs 100 --delta 1e-5`
    """
    from resperturb.privacy.additive import additive_guarantee
    from resperturb.privacy.length import training_length

    budget = additive_guarantee(
        gamma=gamma,
        input_std=input_std,
        radius=radius,
        bound=bound,
        length=training_length(epochs, steps, batch_size, records),
        delta=delta,
        networks=networks,
        blocks=blocks,
        lam=lam,
    )
    emit(_flat(budget), as_json, lambda console: _show(console, budget, next_steps=_next_steps(budget)))


@budget_app.command("multiplicative")
def budget_multiplicative(
    gamma: Annotated[float, typer.Option(help="Noise in every block, relative to the features.")],
    output_std: Annotated[float, typer.Option(help="Noise of the answer, relative to the last features (pi).")],
    bound: MappingBound,
    floor: Floor,
    weight_norm: WeightNorm,
    blocks: Blocks,
    queries: Queries = 1,
    delta: Delta = 1e-5,
    limit: Annotated[float | None, typer.Option(help="Also say how many queries stay within this epsilon.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The multiplicative strategy: Theorem 2, for what is answered and not for the weights.

    Example: `resperturb budget multiplicative --gamma 8 --output-std 4 --bound 1 --floor 0.5 --weight-norm 2
    --blocks 3 --queries 10`
    """
    from resperturb.privacy.multiplicative import NoisyQuery, multiplicative_guarantee, queries_afforded

    query = NoisyQuery(gamma, output_std, bound, floor, weight_norm, blocks)
    budget = multiplicative_guarantee(query, delta=delta, queries=queries)
    payload, after = _flat(budget), []
    if limit is not None:
        afforded = queries_afforded(query, limit, delta)
        payload |= {"limit": limit, "queries_afforded": afforded}
        after = [f"Queries that epsilon {limit:g} affords, to all users together and for ever: {afforded}"]
    emit(payload, as_json, lambda console: _show(console, budget, next_steps=after))


@budget_app.command("dpsgd")
def budget_dpsgd(
    noise_multiplier: Annotated[float, typer.Option(help="Noise over the clipping norm.")],
    batch_size: Annotated[int, typer.Option(help="Mean size of a Poisson-sampled batch.")],
    records: Annotated[int, typer.Option(help="Records in the training set.")],
    epochs: Epochs = None,
    steps: Annotated[int | None, typer.Option(help="Instead of the epochs.")] = None,
    delta: Delta = 1e-5,
    as_json: JsonOption = False,
) -> None:
    """DP-SGD with Poisson-sampled batches.

    Example: `resperturb budget dpsgd --noise-multiplier 1.1 --batch-size 128 --records 12500 --epochs 100`
    """
    from resperturb.privacy.dpsgd import dpsgd_guarantee
    from resperturb.privacy.length import training_length

    run = training_length(epochs, steps, batch_size, records)
    budget = dpsgd_guarantee(noise_multiplier=noise_multiplier, length=run, delta=delta)
    emit(_flat(budget), as_json, lambda console: _show(console, budget))


@calibrate_app.command("additive")
def calibrate_additive(
    epsilon: Epsilon,
    radius: Radius,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    records: Records = None,
    delta: Delta = 1e-5,
    bound: BlockBound = None,
    networks: Networks = 1,
    as_json: JsonOption = False,
) -> None:
    """The least input noise for which the exact bound gives epsilon, and what Theorem 1 would ask.

    Example: `resperturb calibrate additive --epsilon 8 --delta 1e-5 --epochs 100 --radius 30`
    """
    from resperturb.privacy.additive import calibrate_additive, theorem1_noise
    from resperturb.privacy.length import training_length

    run = training_length(epochs, steps, batch_size, records)
    budget = calibrate_additive(
        epsilon=epsilon, delta=delta, length=run, radius=radius, bound=bound, networks=networks
    )
    gamma_theorem, input_std_theorem = theorem1_noise(
        epsilon=epsilon, delta=delta, radius=radius, bound=budget.bound, epochs=run.epochs * networks
    )
    payload = {
        **_flat(budget),
        "gamma_theorem": gamma_theorem,
        "input_std_theorem": input_std_theorem,
    }
    noise = [
        f"Needed: input noise {budget.input_std:.6g}. Gamma does not enter the proof; {budget.gamma:.6g} keeps the "
        f"paper's proportion of 2 to 1.",
        f"Theorem 1 would ask for input noise {input_std_theorem:.6g} and gamma {gamma_theorem:.6g}.",
        f"The noise on one pixel is then {budget.input_std / radius:.3g} times the norm of the largest whole image.",
    ]
    emit(payload, as_json, lambda console: _show(console, budget, needed=noise))


@calibrate_app.command("multiplicative")
def calibrate_multiplicative(
    epsilon: Epsilon,
    bound: MappingBound,
    floor: Floor,
    weight_norm: WeightNorm,
    blocks: Blocks,
    queries: Queries = 1,
    delta: Delta = 1e-5,
    as_json: JsonOption = False,
) -> None:
    """The block and output noise for which so many answers cost epsilon, every layer taking the same share.

    Example: `resperturb calibrate multiplicative --epsilon 8 --bound 1 --floor 0.5 --weight-norm 2 --blocks 3`
    """
    from resperturb.privacy.multiplicative import calibrate_multiplicative, theorem2_noise

    budget = calibrate_multiplicative(
        epsilon=epsilon,
        delta=delta,
        bound=bound,
        floor=floor,
        weight_norm=weight_norm,
        blocks=blocks,
        queries=queries,
    )
    gamma_theorem, output_std_theorem = theorem2_noise(
        epsilon=epsilon, delta=delta, bound=bound, floor=floor, weight_norm=weight_norm, blocks=blocks
    )
    payload = {
        **_flat(budget),
        "gamma_theorem": gamma_theorem,
        "output_std_theorem": output_std_theorem,
    }
    noise = [
        f"Needed: gamma {budget.query.gamma:.6g} and output noise {budget.query.output_std:.6g}.",
        f"Theorem 2, as printed and for one query, would ask for gamma {gamma_theorem:.6g} and output noise "
        f"{output_std_theorem:.6g}; it leaves one of its {blocks + 1} noisy layers uncounted.",
    ]
    emit(payload, as_json, lambda console: _show(console, budget, needed=noise))


@calibrate_app.command("dpsgd")
def calibrate_dpsgd(
    epsilon: Epsilon,
    batch_size: Annotated[int, typer.Option(help="Mean size of a Poisson-sampled batch.")],
    records: Annotated[int, typer.Option(help="Records in the training set.")],
    epochs: Epochs = None,
    steps: Annotated[int | None, typer.Option(help="Instead of the epochs.")] = None,
    delta: Delta = 1e-5,
    as_json: JsonOption = False,
) -> None:
    """The least noise multiplier for which DP-SGD gives epsilon.

    Example: `resperturb calibrate dpsgd --epsilon 8 --batch-size 128 --records 12500 --epochs 100`
    """
    from resperturb.privacy.dpsgd import calibrate_dpsgd
    from resperturb.privacy.length import training_length

    run = training_length(epochs, steps, batch_size, records)
    budget = calibrate_dpsgd(epsilon=epsilon, delta=delta, length=run)
    noise = [f"Needed: a noise multiplier of {budget.noise_multiplier:.6g}."]
    emit(_flat(budget), as_json, lambda console: _show(console, budget, needed=noise))


def _flat(budget: "Guarantee") -> dict[str, Any]:
    values = budget.to_dict()
    return {**values.pop("details"), **values}


def _next_steps(budget: "AdditiveGuarantee") -> list[str]:
    if budget.level != "vacuous":
        return []
    return [
        "This does not say that the model leaks, only that nothing is proven. What attacks find: "
        "`resperturb audit RUN`.",
        "The noise a provable budget needs: `resperturb calibrate additive`, or `calibrate dpsgd`.",
    ]


def _show(console: Any, budget: "Guarantee", *, needed: Sequence[str] = (), next_steps: Sequence[str] = ()) -> None:
    from rich.text import Text

    colours = {"meaningful": "bold green", "weak": "bold yellow", "vacuous": "bold red"}
    text = Text(str(budget))
    text.highlight_words([budget.level.upper() + ":"], colours[budget.level])
    for line in needed:
        console.print(line, markup=False)
    if needed:
        console.print()
    console.print(text)
    if next_steps:
        console.print()
    for line in next_steps:
        console.print(line, markup=False)

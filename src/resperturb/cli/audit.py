"""``resperturb audit``: attack a run, your own training or an existing model, and compare with what is proven."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from resperturb.cli.output import (
    DataInOption,
    EngineOption,
    JobsOption,
    JsonOption,
    RayCpusOption,
    RayGpusOption,
    VerboseOption,
    emit,
    engine_of,
    shown_rate,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from resperturb.bounds.audit_result import AuditResult

# With fewer members or non-members than this luck alone gives any AUC.
FEW = 20


def audit(
    run: Annotated[Path | None, typer.Argument(help="Folder of a finished run.")] = None,
    training: Annotated[
        str | None, typer.Option("--training", help="Audit your own training: MODULE:FUNCTION.", metavar="NAME")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Audit a model that exists: MODULE:FUNCTION.", metavar="NAME")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the audit, if it is not one of a run.")] = None,
    shadows: Annotated[
        int | None, typer.Option(min=4, help="Number of shadow models: even.", show_default="16")
    ] = None,
    design: Annotated[
        Literal["one-target", "leave-one-out"], typer.Option(help="One target, or each model a target once.")
    ] = "one-target",
    models: Annotated[
        int | None, typer.Option(min=6, help="Number of models of leave-one-out: even.", show_default="16")
    ] = None,
    jobs: JobsOption = None,
    draws: Annotated[str, typer.Option(help="Numbers of noise draws to combine, separated by commas.")] = "1,16",
    seed: Annotated[int, typer.Option(help="Random seed of the coins, if it is no run.")] = 0,
    engine: EngineOption = "local",
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    one_run: Annotated[bool, typer.Option("--one-run", help="Train no shadow models.")] = False,
    delta: Annotated[float, typer.Option(help="The delta at which epsilon is bounded.")] = 1e-5,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals and of the bound.")] = 0.95,
    data_in: DataInOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Attack a model by every known membership attack, and compare what that shows with what is proven.

    Shadow models are trained like the run, its perturbation included, on random halves of its images. The attacks are
    thresholds on loss, confidence and entropy, LiRA, RMIA, BaVarIA, label-only, and those of installed packages; with
    one draw of the noise and with many, without the noise, and on each network of an ensemble. Canaries are attacked
    if the run was trained with some (`resperturb train --canaries`).

    `--design leave-one-out --models 16` audits the recipe: each of 16 models is a target once, attacked by the
    others.

    `--training my_module:setup` audits your own training code instead of a run. `setup()` returns the arguments of
    `resperturb.audit` as a dictionary: `{"train": train, "labels": labels, "groups": patients}`.
    `--model my_module:setup` audits an existing model: the arguments of `resperturb.audit_model`.

    `--one-run` trains no shadow models: only attacks that need none are made.

    Examples: `resperturb audit runs/noisy --shadows 16 --jobs 2`,
    `resperturb audit --training my_module:setup --out runs/mine`

    The audit of a run is kept in its folder `audit`. Rerun the same command to resume a stopped audit.
    """
    from resperturb.errors import UsageError

    if (run is not None) + (training is not None) + (model is not None) != 1:
        raise UsageError("give the folder of a run, or --training MODULE:FUNCTION, or --model MODULE:FUNCTION.")
    if design == "leave-one-out" and models is None:
        models = 16
    wanted = {"shadows": 0 if one_run else shadows, "models": models}
    try:
        averages = tuple(int(part) for part in draws.split(","))
    except ValueError:
        raise UsageError(f"--draws takes whole numbers separated by commas, such as 1,16; not {draws!r}.") from None
    settings: Any = {
        **{name: count for name, count in wanted.items() if count is not None},
        "draws": averages,
        "jobs": jobs,
        "engine": engine_of(engine, ray_cpus, ray_gpus),
        "delta": delta,
        "confidence": confidence,
    }
    if run is not None:
        if out is not None:
            raise UsageError("--out is for --training and --model; the audit of a run is kept in the run.")
        from resperturb.training.audited import audit_run
        from resperturb.training.run import open_run

        found = audit_run(open_run(run), **settings)
    else:
        import resperturb

        if out is None:
            raise UsageError("--training and --model need --out, a folder that keeps the audit.")
        if model is not None and models is not None:
            raise UsageError("leave-one-out audits a recipe; an existing model is one target.")
        what = "audit" if model is None else "audit_model"
        given = _setup("--training" if model is None else "--model", training or model or "", what)
        found = getattr(resperturb, what)(**{**settings, "seed": seed, **given}, out=out)
    emit(found.to_dict(), as_json, lambda console: show(console, found, verbose))


def _setup(option: str, name: str, what: str) -> dict[str, Any]:
    """Call the function that a user names; it returns the arguments of a function of this package."""
    import inspect

    import resperturb
    from resperturb.errors import UsageError
    from resperturb.registry import users_function

    module, _, function = name.partition(":")
    if not module or not function:
        raise UsageError(f"{option} takes MODULE:FUNCTION, such as my_module:setup, not {name!r}.")
    setup = users_function(module, function, option)
    try:
        inspect.signature(setup).bind()
    except TypeError:
        raise UsageError(
            f"{name} takes arguments. {option} needs a function without any that returns the arguments of "
            f"resperturb.{what} as a dictionary."
        ) from None
    found = setup()
    if not isinstance(found, dict):
        raise UsageError(f"{name}() must return a dictionary, not {type(found).__name__}.")
    try:
        inspect.signature(getattr(resperturb, what)).bind(**found, out=None)
    except TypeError as error:
        raise UsageError(f"{name}() must return the arguments of resperturb.{what} by name: {error}.") from None
    return found


def show(console: Any, found: "AuditResult", verbose: bool = False) -> None:
    """Print an audit in about 15 lines: the verdict, who is found, the two bounds, caveats; tables if asked."""
    from rich.text import Text

    from resperturb.report.gate import tried

    strongest, kind = found.strongest, found.strongest.kind
    metrics = strongest.metrics[kind]
    low, high = metrics.auc_interval
    console.print(Text(visible(_verdict(found)), style="bold red" if found.leaks else "bold"))
    console.print(
        f"AUC {metrics.auc:.3f} ({low:.3f} to {high:.3f}) on {_plural(found, kind)} by "
        f"{strongest.full_name}; {tried(found)}.\n"
        f"{found.model.description}; accuracy {found.model.train_accuracy:.3f} on members, "
        f"{found.model.test_accuracy:.3f} on non-members.",
        markup=False,
    )
    if found.headline != (strongest, kind):
        attack, where = found.headline
        low, high = attack.metrics[where].auc_interval
        shows = f"AUC {attack.metrics[where].auc:.3f} ({low:.3f} to {high:.3f})"
        console.print(f"The leak shows on {_plural(found, where)}, by {attack.full_name}: {shows}.", markup=False)
    kinds = [one for one in dict.fromkeys(one for attack in found.fixed for one in attack.metrics) if one != kind]
    if verbose:
        for part in _tables(found, kind):
            console.print(part)
    for other in kinds:
        best = max((one.metrics[other] for one in found.fixed if other in one.metrics), key=lambda one: one.auc)
        low, high = best.auc_interval
        console.print(f"{_plural(found, other)}: AUC {best.auc:.3f} ({low:.3f} to {high:.3f})", markup=False)
    if min(metrics.members, metrics.nonmembers) < FEW:
        console.print(
            f"[bold yellow]Only {metrics.members} members and {metrics.nonmembers} non-members were queried:[/] "
            f"with fewer than {FEW} of each, luck alone can give any of these numbers."
        )
    _show_exposed(console, found)
    _show_bounds(console, found)
    for line in (*found.epsilon_lower.assumptions, *found.caveats) if verbose else found.notes:
        console.print(f"- {line}", markup=False)
    if not verbose:
        console.print("Every attack and rate, assumptions and standing caveats: --verbose.")


def _verdict(found: "AuditResult") -> str:
    """The verdict in a line that 80 columns hold."""
    from resperturb.bounds.audit_result import GROUP, RECORD

    kind = found.strongest.kind
    areas = [f"AUC {found.strongest.auc:.3f}"]
    if found.canaries is not None and kind in (RECORD, GROUP):
        areas.append(f"canaries {found.canaries.auc:.3f}")
    epsilon = found.epsilon_lower.epsilon
    shown = f"epsilon >= {epsilon:.3g}" if epsilon else "no epsilon shown"
    return f"{found.model.name} {found.seen}: {', '.join(areas)}; {shown}"


def _plural(found: "AuditResult", kind: str) -> str:
    from resperturb.report.wording import group_name, whom

    return whom(kind, group_name(found))


def _tables(found: "AuditResult", kind: str) -> "Iterator[str | Table]":
    """Every attack on one kind of candidate: those that were fixed beforehand, then the others."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    for title, fixed in (("The attacks that were fixed beforehand", True), ("All others", False)):
        shown = [(one, one.metrics[kind]) for one in found.attacks if kind in one.metrics and one.fixed == fixed]
        if not shown:
            continue
        # A column of nothing but *too few* has no room.
        rates = [rate for rate in (0.0, 0.001, 0.01, 0.1) if any(one.at_fpr(rate) is not None for _, one in shown)]
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("attack", overflow="fold")
        shares = [f"\n{100 * rate:g}%" for rate in rates if rate]
        for heading in ("AUC\ninterval", "bal.\nacc.", "TPR at\n0% FPR", *shares, "epsilon\n>="):
            table.add_column(heading, justify="right", no_wrap=True)
        for attack, one in shown:
            low, high = one.auc_interval
            table.add_row(
                f"{attack.name}\n  {attack.view}",
                f"{one.auc:.3f}\n{low:.3f}-{high:.3f}",
                f"{one.balanced_accuracy:.3f}",
                *(shown_rate(one.at_fpr(rate)) for rate in rates),
                "" if attack.lower_bound is None else f"{attack.lower_bound.epsilon:.3f}",
            )
        yield f"\n[italic]{title}, on the {_plural(found, kind)} (an AUC of 0.5 is guessing)[/]"
        yield table


def _show_exposed(console: Any, found: "AuditResult") -> None:
    exposed = found.exposed
    if exposed is None or exposed.metrics is None:
        return
    low, high = exposed.metrics.auc_interval
    console.print(
        f"Most exposed: on the {exposed.count} candidates whose inclusion changes shadow models most, "
        f"{exposed.attack} has an AUC of {exposed.metrics.auc:.3f} ({low:.3f} to {high:.3f}). The worst, a "
        f"{exposed.worst_kind.replace('_', '-')}, is {exposed.separation:.1f} standard deviations apart between "
        "models with and without it.",
        markup=False,
    )


def _show_bounds(console: Any, found: "AuditResult") -> None:
    from rich.text import Text

    colours = {"refuted": "bold red", "consistent": "bold green"}
    console.print()
    console.print(Text(found.guarantee.sentence))
    tested = found.tested_guarantee
    if tested.neighbours != found.guarantee.neighbours:
        console.print(Text(f"As this audit can test it ({tested.neighbours}): {tested.sentence}"))
    how = "" if found.epsilon_lower.unmet else f", as {found.epsilon_lower.correction}"
    unit = f" per {found.unit}" if found.epsilon_lower.unit == "group" and not found.epsilon_lower.unmet else ""
    console.print(Text(f"Shown: {found.epsilon_lower.words}{unit}{how}."))
    if found.verdict != "nothing proven":
        console.print(Text(found.verdict_sentence, style=colours.get(found.verdict, "bold yellow")))

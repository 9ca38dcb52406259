"""``resperturb demo``: see in a minute what residual perturbation and a private head do to leakage and accuracy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from resperturb.cli.output import LARGEST_SEED, JsonOption, emit, training_progress

# Half of the built-in sample leaves 500 images to each quarter: few enough that a network memorises them within a
# minute, which is what a membership attack feeds on, and enough for it to classify others well.
DATA: dict[str, Any] = {"spec": "fashion-sample", "limit": 2000, "part": "target_train"}
NETWORK: dict[str, Any] = {"epochs": 40, "batch_size": 32, "seeded_noise": True}
# The noise of the head stays secret, without which nothing would be proven. A small map saves half a minute.
HEAD: dict[str, Any] = {"method": "dp-head", "model_args": {"directions": 400, "images": 2000}}
RUNS: dict[str, dict[str, Any]] = {
    "plain": NETWORK,
    "additive": {**NETWORK, "perturbation": {"name": "additive", "gamma": 1.0}},
    "multiplicative": {**NETWORK, "perturbation": {"name": "multiplicative", "gamma": 2.0}},
    "dp-head": HEAD,
}
TITLE = "Residual perturbation and a private head on a sample of Fashion-MNIST"


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the report and the runs.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of everything in it.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a small network without noise and with both kinds, and a private head; audit all four and decide.

    It takes about a minute on two cores and downloads nothing: a sample of Fashion-MNIST is built in.

    Example: `resperturb demo --out demo`
    """
    from rich.console import Console

    from resperturb.files import write_bytes
    from resperturb.report.gate import decide
    from resperturb.report.page import render
    from resperturb.report.policy import Limits, Policy
    from resperturb.training.audited import audit_run
    from resperturb.training.config import make_config
    from resperturb.training.folders import OpenedRun
    from resperturb.training.loop import train

    progress = Console(stderr=True, quiet=as_json, highlight=False)
    models = []
    for number, (name, settings) in enumerate(RUNS.items(), start=1):
        progress.print(f"{number}/{len(RUNS)} {name}: training and auditing")
        with training_progress("") as on_update:
            run = train(make_config(data=DATA, seed=seed, **settings), out=out / name, on_update=on_update)
        audit_run(run, shadows=0, quiet=as_json)
        models.append(OpenedRun.of(run))
    report = out / "report.html"
    # It asks for no shadow models, so that a first look ends with a decision.
    policy = Policy(limits=Limits(auc=0.6), name="demo")
    write_bytes(report, render(models, TITLE, policy=policy).encode())
    decisions = [decide(model, policy) for model in models]
    payload = {
        "report": str(report),
        "models": [model.to_dict() for model in models],
        "decisions": {one.model.name: one.state.word for one in decisions},
    }
    emit(payload, as_json, lambda console: _show(console, report, models, decisions, policy))


def _show(console: Any, report: Path, models: Any, decisions: Any, policy: Any) -> None:
    from rich.table import Table

    from resperturb.cli.report import comparison

    console.print(comparison(models))
    console.print(f"Decision by the demo's policy ({policy.words}):")
    table = Table.grid(padding=(0, 2, 0, 1))
    for one in decisions:
        colour, row = one.state.colour, one.deciding
        table.add_row(
            one.model.name, f"[{colour}]{one.state.shape} {one.state.word}[/]", row.verdict if row else one.meaning
        )
    console.print(table)
    console.print(f"\nOpen {report} in a browser for the decision and the charts.")
    console.print("Without shadow models the attacks are weak: they can show a leak, and never its absence.")
    console.print("Only the head on public features, dp-head, has a guarantee: no attack can do better than its AUC.")
    console.print("Next: resperturb train --data YOUR_FOLDER --gamma 1.0, or --method dp-head --features scattering")

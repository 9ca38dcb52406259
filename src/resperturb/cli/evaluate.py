"""``resperturb evaluate``: the accuracy of a run, its noise averaged over draws or switched off."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from resperturb.cli.output import DataInOption, JsonOption, emit


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    draws: Annotated[int, typer.Option(min=1, help="Noise draws averaged for every answer.")] = 1,
    noise_off: Annotated[bool, typer.Option("--noise-off", help="Silence the noise.")] = False,
    data_in: DataInOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a run's accuracy on its training and test images, averaged over draws of the noise.

    The test images give AUROC, sensitivity and specificity too. Of two classes the second is the positive one; of
    more they are means over the classes.

    One draw is what the paper reports. More draws give back some of the accuracy that the noise costs; an attacker
    who may ask as often can average as well. `--noise-off` is what someone who holds the weights can do.

    Example: `resperturb evaluate runs/noisy --draws 16`
    """
    from resperturb import perturbation
    from resperturb.training.inputs import load_inputs
    from resperturb.training.loop import evaluate as evaluate_model
    from resperturb.training.predict import require_noise
    from resperturb.training.run import open_run

    opened = open_run(run)
    model = opened.load_model()
    inputs = load_inputs(opened.config.data)
    noisy = opened.config.is_noisy and not noise_off
    if noisy:
        require_noise(model, inputs.test.images, opened.config.mean, opened.config.std)
    with perturbation.noise_off(model) if noise_off else nullcontext():
        train, test = (
            evaluate_model(model, images, opened.config, draws) for images in (inputs.members(), inputs.test)
        )
    found = {
        "run": str(run),
        "draws": draws,
        "noise": noisy,
        "train_accuracy": train.accuracy,
        "test_accuracy": test.accuracy,
        "gap": train.accuracy - test.accuracy,
        "auroc": test.auroc,
        "sensitivity": test.sensitivity,
        "specificity": test.specificity,
    }
    how = f"{draws} draw{'s' if draws > 1 else ''} of the noise" if noisy else "no noise"
    numbers = (f"{name.replace('_', ' ')} {one:.3f}" for name, one in found.items() if isinstance(one, float))
    emit(found, as_json, lambda console: console.print(f"{run}, {how}: {', '.join(numbers)}", markup=False))

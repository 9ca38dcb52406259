import json
import subprocess
import sys

import pytest

import resperturb as rp
from resperturb.cli import main
from resperturb.perturbation.strategy import TrainingFacts
from resperturb.training.config import make_config

ADDITIVE = "budget additive --gamma 0.5 --radius 30 --epochs 100 --delta 1e-5"
DPSGD = "--batch-size 50 --records 1000 --steps 20 --delta 1e-5"


@pytest.fixture
def run(monkeypatch, capsys):
    def call(command):
        monkeypatch.setattr(sys, "argv", ["resperturb", *command.split()])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return call


def answer(run, command):
    code, out, err = run(command + " --json")
    assert code == 0, err
    return json.loads(out)


def test_a_budget_has_the_promised_names(run):
    found = answer(run, "budget additive --input-std 400 --radius 30 --epochs 100")
    for name in ("epsilon", "delta", "input_std", "protects", "assumptions", "meaning", "mu", "max_auc"):
        assert name in found
    assert found["epsilon"] == pytest.approx(7.05, abs=0.005)
    assert "weak" in found["meaning"]


def test_a_budget_and_the_guarantee_of_the_same_run_are_one_rule(run):
    """For a bound that needs tails which computed noise lacks, and for one that does not."""
    for gamma in (0.5, 800.0):
        facts = TrainingFacts(epochs=100, batch_size=50, records=1000, input_radius=30.0)
        proven = rp.Additive(gamma=gamma).guarantee(facts, 1e-5)
        found = answer(
            run, f"budget additive --gamma {gamma} --radius 30 --epochs 100 --batch-size 50 --records 1000"
        )
        assert found["epsilon"] == (proven.claimed_epsilon if gamma > 1 else "inf")
        assert found["meaning"] == proven.meaning


@pytest.mark.parametrize("noise", [0.3, 1.5])
def test_a_budget_of_dpsgd_and_the_guarantee_of_the_same_run_are_one_rule(run, noise):
    config = make_config(data={"spec": "x"}, batch_size=50, method={"name": "dpsgd", "noise_multiplier": noise})
    proven = config.method.guarantee(config, records=1000, steps=50)
    found = answer(run, f"budget dpsgd --noise-multiplier {noise} --steps 50 --batch-size 50 --records 1000")
    assert found["epsilon"] == (proven.claimed_epsilon if noise > 1 else "inf")
    assert found["meaning"] == proven.meaning


def test_a_person_reads_on_one_screen_that_nothing_is_proven(run):
    code, out, _ = run(ADDITIVE)
    text = " ".join(out.split())
    assert code == 0
    assert "VACUOUS: an assumption is not met, so nothing is promised. Noise that is Gaussian" in text
    assert "would give an epsilon of 2,890,000" in text
    assert "NOT its label" in text
    assert "resperturb audit RUN" in text
    assert len(out.splitlines()) <= 40


def test_steps_and_epochs_are_the_same_training(run):
    by_epochs = answer(run, "budget additive --gamma 90 --radius 3 --epochs 10")
    by_steps = answer(run, "budget additive --gamma 90 --radius 3 --steps 100 --batch-size 10 --records 100")
    assert by_epochs["epsilon"] == by_steps["epsilon"]
    assert by_epochs["input_std"] == 45


def test_no_noise_is_written_as_inf(run):
    assert answer(run, "budget additive --gamma 0 --radius 30 --epochs 1")["epsilon"] == "inf"


@pytest.mark.parametrize("epsilon", [0.001, 8.0])
def test_the_noise_that_an_epsilon_needs_gives_that_epsilon(run, epsilon):
    run_ = "--epochs 100 --radius 30 --delta 1e-5"
    found = answer(run, f"budget additive --epsilon {epsilon} {run_}")
    for noise in (f"--input-std {found['input_std']}", f"--gamma {2 * found['input_std']}"):
        assert answer(run, f"budget additive {noise} {run_}")["epsilon"] == pytest.approx(epsilon, rel=1e-6)


def test_the_additive_noise_for_an_epsilon_is_compared_with_the_image(run):
    code, out, _ = run("budget additive --epsilon 8 --delta 1e-5 --epochs 100 --radius 30")
    assert code == 0
    assert out.startswith("Needed: input noise 360.")
    assert "12 times the norm of an image" in " ".join(out.split())


def test_the_budget_of_a_head_is_its_guarantee(run):
    found = answer(run, "budget dp-head --epsilon 3 --records 2924 --unit patient")
    assert found["epsilon"] == pytest.approx(3, rel=1e-6)
    assert found["max_auc"] == pytest.approx(0.694, abs=5e-4)
    assert "one patient, all of its records" in found["protects"]
    assert "few for this epsilon" in run("budget dp-head --epsilon 3 --records 100")[1]


def test_the_dpsgd_noise_that_an_epsilon_needs_gives_that_epsilon(run):
    found = answer(run, f"budget dpsgd --epsilon 2 {DPSGD}")
    back = answer(run, f"budget dpsgd --noise-multiplier {found['noise_multiplier']} {DPSGD}")
    assert back["epsilon"] == pytest.approx(2, rel=1e-3)
    assert back["epsilon"] <= 2
    assert back["neighbours"] == "add_remove"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("budget additive --gamma 1 --radius 1 --epochs 1 --delta 1", "delta must lie strictly between 0 and 1"),
        ("budget additive --gamma 1 --radius -1 --epochs 1", "radius must be a number of at least 0"),
        ("budget additive --gamma 1 --radius 1 --steps 9 --batch-size 12 --records 10", "12 cannot be drawn from 10"),
        ("budget additive --gamma 1 --radius 1", "give the epochs"),
        ("budget additive --gamma nan --radius 1 --epochs 1", "input std"),
        ("budget dpsgd --noise-multiplier 1 --batch-size 10 --records 5 --epochs 1", "10 cannot be drawn from 5"),
        ("budget additive --epsilon 0 --epochs 1 --radius 1", "epsilon must be a number above 0"),
        ("budget additive --epsilon 1 --epochs 1 --radius 0", "radius must be a number above 0"),
        ("budget additive --epochs 1 --radius 1", "give either the noise (--gamma or --input-std) or the --epsilon"),
        ("budget additive --gamma 1 --epsilon 1 --epochs 1 --radius 1", "give either the noise"),
        ("budget additive --epsilon 900 --epochs 1 --radius 1", "tails that computed noise does not have"),
        ("budget dpsgd --epsilon -1 --batch-size 10 --records 100 --epochs 1", "epsilon must be a number above 0"),
        ("budget dpsgd --batch-size 10 --records 100 --epochs 1", "give either the noise (--noise-multiplier)"),
        ("budget dp-head --epsilon 0 --records 100", "epsilon must be a number above 0"),
    ],
)  # fmt: skip
def test_a_mistake_ends_with_one_sentence_and_exit_code_2(run, command, message):
    code, out, err = run(command)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_every_command_has_help_with_an_example(run):
    _, listing, _ = run("budget --help")
    for name in ("additive", "dpsgd", "dp-head"):
        assert name in listing
        code, out, _ = run(f"budget {name} --help")
        assert code == 0
        assert f"Example: resperturb budget {name}" in " ".join(out.split())


def test_help_loads_nothing_heavy():
    script = (
        "import sys; sys.argv = ['resperturb', 'budget', 'additive', '--help']\n"
        "from resperturb.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'numpy', 'scipy', 'torch', 'dp_accounting'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)

import json
import math
import subprocess
import sys

import pytest

from resperturb.cli import main

ADDITIVE = "budget additive --gamma 0.5 --input-std 0.25 --radius 30 --bound 30 --epochs 100 --delta 1e-5"
MULTIPLICATIVE = "--bound 1 --floor 0.5 --weight-norm 2 --blocks 3 --delta 1e-5"
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


def test_the_additive_budget_has_the_promised_names(run):
    found = answer(run, ADDITIVE)
    for name in ("epsilon_theorem", "epsilon_exact", "epsilon", "delta", "gamma", "input_std", "protects",
                 "assumptions", "meaning"):  # fmt: skip
        assert name in found
    assert found["epsilon"] == found["epsilon_exact"] < found["epsilon_theorem"]
    rho = 2 * 100 * (30 / 0.25) ** 2
    assert found["epsilon_theorem"] == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)))
    assert "vacuous" in found["meaning"]


def test_a_person_reads_on_one_screen_that_the_number_means_nothing(run):
    code, out, _ = run(ADDITIVE)
    text = " ".join(out.split())
    assert code == 0
    assert "VACUOUS: this number promises nothing of use" in text
    assert "NOT its label" in text
    assert "not true in general" in text
    assert "resperturb audit RUN" in text
    assert len(out.splitlines()) <= 40


def test_steps_and_epochs_are_the_same_training(run):
    by_epochs = answer(run, "budget additive --gamma 9 --radius 3 --epochs 10")
    by_steps = answer(run, "budget additive --gamma 9 --radius 3 --steps 100 --batch-size 10 --records 100")
    assert by_epochs["epsilon"] == by_steps["epsilon"]
    assert by_epochs["input_std"] == 4.5


def test_no_noise_is_written_as_inf(run):
    found = answer(run, "budget additive --gamma 0 --radius 30 --epochs 1")
    assert found["epsilon"] == found["epsilon_exact"] == found["epsilon_theorem"] == "inf"


@pytest.mark.parametrize("epsilon", [0.001, 8.0, 50000.0])
def test_additive_calibration_then_budget_returns_the_epsilon(run, epsilon):
    run_ = "--epochs 100 --radius 30 --bound 20 --delta 1e-5"
    found = answer(run, f"calibrate additive --epsilon {epsilon} {run_}")
    both = answer(run, f"budget additive --gamma {found['gamma']} --input-std {found['input_std']} {run_}")
    assert both["epsilon"] == pytest.approx(epsilon, rel=1e-6)
    gamma_alone = answer(run, f"budget additive --gamma {found['gamma']} {run_}")
    assert gamma_alone["epsilon"] == pytest.approx(epsilon, rel=1e-6)
    printed = answer(
        run, f"budget additive --gamma {found['gamma_theorem']} --input-std {found['input_std_theorem']} {run_}"
    )
    assert printed["epsilon_theorem"] == pytest.approx(epsilon, rel=1e-6)


def test_additive_calibration_says_how_large_the_noise_is(run):
    code, out, _ = run("calibrate additive --epsilon 8 --delta 1e-5 --epochs 100 --radius 30 --bound 30")
    assert code == 0
    assert out.startswith("Needed: input noise 360.")
    assert "12 times the norm of the largest whole image" in " ".join(out.split())


def test_multiplicative_calibration_then_budget_returns_the_epsilon(run):
    found = answer(run, f"calibrate multiplicative --epsilon 8 --queries 10 {MULTIPLICATIVE}")
    noise = f"--gamma {found['gamma']} --output-std {found['output_std']}"
    back = answer(run, f"budget multiplicative {noise} --queries 10 --limit 8 {MULTIPLICATIVE}")
    assert back["epsilon"] == pytest.approx(8, rel=1e-6)
    assert back["queries_afforded"] == 10
    assert back["epsilon"] <= back["epsilon_rdp"]


def test_dpsgd_calibration_then_budget_returns_the_epsilon(run):
    found = answer(run, f"calibrate dpsgd --epsilon 2 {DPSGD}")
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
        ("budget additive --gamma nan --radius 1 --epochs 1", "gamma"),
        ("budget dpsgd --noise-multiplier 1 --batch-size 10 --records 5 --epochs 1", "10 cannot be drawn from 5"),
        ("budget multiplicative --gamma 1 --output-std 1 --bound 1 --floor 1 --weight-norm 1 --blocks 0", "blocks"),
        ("calibrate additive --epsilon 0 --epochs 1 --radius 1", "epsilon must be a number above 0"),
        ("calibrate additive --epsilon 1 --epochs 1 --radius 0", "radius must be a number above 0"),
        ("calibrate dpsgd --epsilon -1 --batch-size 10 --records 100 --epochs 1", "epsilon must be a number above 0"),
    ],
)  # fmt: skip
def test_a_mistake_ends_with_one_sentence_and_exit_code_2(run, command, message):
    code, out, err = run(command)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("group", ["budget", "calibrate"])
def test_every_command_has_help_with_an_example(run, group):
    _, listing, _ = run(f"{group} --help")
    names = {"budget": ("additive", "multiplicative", "dpsgd"),
             "calibrate": ("additive", "multiplicative", "dpsgd")}[group]  # fmt: skip
    for name in names:
        assert name in listing
        code, out, _ = run(f"{group} {name} --help")
        assert code == 0
        assert f"Example: resperturb {group} {name}" in " ".join(out.split())


def test_asking_for_help_loads_nothing_heavy():
    script = (
        "import sys; sys.argv = ['resperturb', 'budget', 'additive', '--help']\n"
        "from resperturb.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'numpy', 'scipy', 'torch', 'dp_accounting'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)

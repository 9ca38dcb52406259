"""Run every tool on the same models, each in an environment of its own, and write docs/results/comparison.json.

    python benchmarks/comparison/measure.py runs/comparison ART=venv-art/bin/python bounds-resperturb=python ...
    python benchmarks/comparison/measure.py runs/comparison              # collect it, and print the page's tables

Each script says what its environment needs. Names: those of ``SCRIPTS``, and ``bounds-resperturb``,
``bounds-jax-privacy``, ``bounds-privacy-meter`` at the end. CPU time is that of the whole process, and of its imports
alone in a process of their own. Other load on the machine lengthens both, though less than wall time.
"""

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULT = HERE.parents[1] / "docs" / "results" / "comparison.json"
TARGET = 0
NULLS = "200"  # sets of scores without signal
SCRIPTS = {
    "resperturb, your training": "run_audit.py",
    "resperturb, given predictions": "run_predictions.py",
    "ART": "run_art.py",
    "SACRO-ML": "run_sacro.py",
    "Privacy Meter": "run_privacy_meter.py",
    "jax-privacy": "run_jax_privacy.py",
}
PACKAGES = {
    "resperturb, your training": "resperturb",
    "resperturb, given predictions": "resperturb",
    "ART": "adversarial-robustness-toolbox",
    "SACRO-ML": "sacroml",
    "jax-privacy": "jax-privacy",
}
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(source: str) -> int:
    """Count the lines that hold code: no blank ones, no comments, no docstrings.

    >>> lines_of_code('def f():\\n    "A docstring."\\n\\n    return 1  # one\\n')
    2
    """
    told: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SKIPPED:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - told)


def imports_of(source: str) -> str:
    """Return the imports of a script, alone."""
    return "\n".join(
        ast.unparse(node) for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)
    )


def cpu_seconds(command: list[str], log: Path) -> tuple[float, int]:
    """Run a command; return the CPU time of it and its children, and its exit code."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    # A folder of its own: SACRO-ML keeps shadow models where it runs, and would not train them again.
    with log.open("w") as written, tempfile.TemporaryDirectory() as cwd:
        process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT, env=environment, cwd=cwd)
        _, status, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime, os.waitstatus_to_exitcode(status)


def measure(name: str, python: str, folder: Path) -> None:
    """Run one tool, and keep its cost and its output."""
    source = (HERE / SCRIPTS[name]).read_text()
    out, log = folder / f"{name}.json", folder / f"{name}.log"
    out.unlink(missing_ok=True)
    started, _ = cpu_seconds([python, "-c", imports_of(source)], log)
    arguments = [str(folder / "models" / "models.npz"), str(TARGET), str(out)]
    used, code = cpu_seconds([python, "-W", "ignore", str(HERE / SCRIPTS[name]), *arguments], log)
    measured: dict[str, Any] = {"cpu_seconds": round(used, 1), "import_seconds": round(started, 1)}
    if name in PACKAGES:
        asked = [python, "-c", f"import importlib.metadata as m; print(m.version({PACKAGES[name]!r}))"]
        measured["version"] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if code:
        measured["error"] = log.read_text().strip().splitlines()[-1]
    (folder / f"{name}.measured").write_text(json.dumps(measured) + "\n")


def collect(folder: Path) -> dict[str, Any]:
    """Collect all results, with metrics from the scores by one definition for all tools."""
    from resperturb.bounds.attack_metrics import attack_metrics

    tools: dict[str, Any] = {}
    for name, script in SCRIPTS.items():
        measured = folder / f"{name}.measured"
        if not measured.exists():
            continue
        entry: dict[str, Any] = {"script": script, "glue_lines": lines_of_code((HERE / script).read_text())}
        entry |= json.loads(measured.read_text())
        if "error" not in entry:
            said = json.loads((folder / f"{name}.json").read_text())
            own = said.pop("attacks", None)
            if own is None:
                with np.load(folder / f"{name}.npz") as kept:
                    scores, members = kept["scores"], kept["members"]
                found = attack_metrics(scores[members], scores[~members])
                rates = {f"{at.fpr:g}": at.tpr for at in found.tpr_at_fpr}
                own = [{"name": said["attack"], "auc": found.auc, "tpr": rates}]
            entry |= {**said, "auc": own[0]["auc"], "tpr": own[0]["tpr"], "attacks": own}
        tools[name] = entry
    bounds = {
        path.stem.removeprefix("bounds-"): json.loads(path.read_text())
        for path in sorted(folder.glob("bounds-*.json"))
    }
    with np.load(folder / "models" / "models.npz") as kept:
        answers, members, labels = kept["probabilities"][TARGET], kept["members"], kept["labels"]
    right, candidates = answers.argmax(axis=1) == labels, members.any(axis=0)
    return {
        "job": {
            "candidates": int(candidates.sum()),
            "members": int(members[TARGET].sum()),
            "population": int((~candidates).sum()),
            "shadows": len(members) - 2,
            "train_accuracy": float(right[members[TARGET]].mean()),
            "test_accuracy": float(right[candidates & ~members[TARGET]].mean()),
        },
        "tools": tools,
        "bounds": bounds,
    }


def tables(result: dict[str, Any]) -> str:
    """Return the tables of docs/comparison.md, in Markdown."""
    lines = [
        "| tool | version | lines of glue | CPU seconds | attack | AUC | TPR at 1% FPR | epsilon at least |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, tool in result["tools"].items():
        cells = [name, tool.get("version", "no release"), str(tool["glue_lines"]), f"{tool['cpu_seconds']:.0f}"]
        if "error" in tool:
            cells += [f"`{tool['error']}`", "", "", ""]
        else:
            epsilon = tool.get("epsilon")
            cells += [tool["attack"], f"{tool['auc']:.3f}", f"{tool['tpr']['0.01']:.3f}"]
            cells.append("" if epsilon is None else f"{epsilon:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    columns = [(tool, bound) for tool, of in result["bounds"].items() for bound in of["false_claims"]]
    lines += ["", "| scores of | " + " | ".join(f"{tool}: {bound}" for tool, bound in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for name in result["tools"]:
        if all(name in of["scores"] for of in result["bounds"].values()):
            values = (result["bounds"][tool]["scores"][name][bound] for tool, bound in columns)
            lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure the tools of the command line, and collect."""
    folder = Path(sys.argv[1]).resolve()
    for asked in sys.argv[2:]:
        name, _, python = asked.partition("=")
        python = str(Path(python).absolute()) if os.sep in python else python
        if name.startswith("bounds-"):
            tool = name.removeprefix("bounds-")
            arguments = [tool, str(folder), str(folder / f"{name}.json"), NULLS]
            _, code = cpu_seconds([python, str(HERE / "run_bounds.py"), *arguments], folder / f"{name}.log")
            print(name, "failed" if code else "done", flush=True)
        else:
            measure(name, python, folder)
            print((folder / f"{name}.measured").read_text().strip(), flush=True)
    if not sys.argv[2:]:
        result = collect(folder)
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
        print(tables(result))


if __name__ == "__main__":
    main()

"""The folder of an audit: its plan, one file of answers per model, scores, and the result.

Everything is bound to the plan, and the result to the scores, so that files of different audits cannot be mixed.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, get_args

import numpy as np

from resperturb.attacks.evidence import Answers
from resperturb.attacks.signals import Access, Signals, signals_from
from resperturb.bounds.arrays import Array, Bools, Ints, Singles, Texts
from resperturb.bounds.audit_result import CANARIES, GROUP, RECORD, SCHEMA, AttackScores, AuditResult
from resperturb.bounds.comparison import per_group
from resperturb.errors import ResperturbError, UsageError
from resperturb.files import digest_of, held, read_json, write_bytes
from resperturb.sealed import (
    read_binding,
    read_bound_arrays,
    read_bound_json,
    write_array,
    write_bound_arrays,
    write_bound_json,
)

_logger = logging.getLogger(__name__)

AUDIT_FILE, PLAN_FILE, SCHEMA_FILE = "audit.json", "plan.json", "schema.json"
MODELS, SCORES = "models", "scores"
PLAN_SCHEMA = 3
AGAIN = "run the audit again"
# What is kept of the candidates next to the scores.
_COLUMNS = ("members", "units", "kinds", "rows", "targets")

T = TypeVar("T")
OTHER_VERSION = "was written by another version of resperturb; run the audit again in another folder"


@dataclass(frozen=True)
class Plan:
    """The plan of an audit; all but ``draws`` and ``population`` must stay the same.

    ``train`` is the digest of the trainee, ``seed`` that of the coins. ``rows`` are the candidates and the rows that
    every model is trained on, ``members`` those that were given. Arrays are kept by their digests.
    """

    train: str
    labels: str
    groups: str
    kinds: str
    rows: str
    design: str
    members: str
    seed: int
    draws: tuple[int, ...]
    population: str
    schema: int = PLAN_SCHEMA

    @property
    def question(self) -> str:
        """Digest of all of it."""
        return text_digest(repr(self))


def array_digest(*arrays: Array) -> str:
    """Name arrays by their contents.

    >>> array_digest(np.arange(3)) == array_digest(np.arange(3)), len(array_digest(np.arange(3)))
    (True, 16)
    """
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(repr((array.dtype.str, array.shape)).encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()[:16]


def text_digest(text: str) -> str:
    """Name a text by its contents."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of the attacks that were fixed beforehand, by key; higher for those taken to be members.

    They and ``members`` are ``[T, n]``, of ``n`` candidates in ``T`` targets. ``targets`` are the numbers of their
    models, and ``units``, ``kinds`` and ``rows`` those of the candidates.
    """

    members: Bools
    units: Ints
    kinds: Texts
    rows: Ints
    targets: Ints
    attacks: Mapping[str, Singles]

    def pooled(self, attack: str, kind: str) -> AttackScores:
        """Return an attack's scores of members and of non-members of one kind, of all targets together.

        Scores of groups are combined as the kind says: their mean, or the sum of likelihood ratios.
        """
        grouped = kind.startswith(GROUP)
        chosen = self.kinds != RECORD if kind == CANARIES else self.kinds == (RECORD if grouped else kind)
        scores = np.asarray(self.attacks[attack], dtype=np.float64)[:, chosen]
        inside = self.members[:, chosen]
        if grouped:
            how, units = "mean" if kind == GROUP else "sum", self.units[chosen]
            scores, inside = per_group(scores, inside, units, how)
        return AttackScores(scores[inside], scores[~inside])


@dataclass(frozen=True)
class Store:
    """The answers of one audit in its folder."""

    folder: Path
    plan: Plan

    def keep(self, number: int, answers: Answers, bound: Mapping[str, str]) -> None:
        """Keep the answers of a model."""
        keep_answers(answers_path(self.folder, number), answers, bound)

    def seed(self, number: int) -> str:
        """Return the seed that the kept answers of a model are bound to; empty where nothing says it."""
        with suppress(ResperturbError):
            return (read_binding(answers_path(self.folder, number)).digests or {}).get("seed", "")
        return ""

    def answers(self, number: int, rows: int, bound: Mapping[str, str], stage: str = "") -> Answers | None:
        """Read the answers of a model back; None if there are none, or if they cannot be believed."""
        path = answers_path(self.folder, number, stage)
        try:
            return read_answers(path, rows, bound) if path.exists() else None
        except ResperturbError as error:
            _logger.warning("%s", error)
            return None

    def stages(self, number: int) -> list[str]:
        """List the checkpoints of a model whose answers are kept, in the order of the numbers in their names."""
        found = (self.folder / MODELS).glob(f"{number:03d}.*.npz")
        names = [path.name.split(".", 1)[1].removesuffix(".npz") for path in found]
        return sorted(names, key=lambda name: [part.zfill(20) for part in re.split(r"(\d+)", name)])


def answers_path(folder: Path, number: int, stage: str = "") -> Path:
    """Name the file of a model's answers."""
    return folder / MODELS / (f"{number:03d}.{stage}.npz" if stage else f"{number:03d}.npz")


def keep_answers(path: Path, answers: Answers, bound: Mapping[str, str]) -> None:
    """Write answers to a file, bound to what produced them."""
    arrays = {
        f"{access}/{name}": np.asarray(getattr(signals, name))
        for access, signals in answers.items()
        for name in Signals.__annotations__
    }
    write_bound_arrays(path, arrays, bound)


def read_answers(path: Path, rows: int, bound: Mapping[str, str]) -> Answers:
    """Read what :func:`keep_answers` wrote.

    Raises:
        ResperturbError: The file is damaged, is of another model or question, or about another number of rows.
    """
    again = "the model is queried again"
    found: dict[Any, dict[str, Array]] = {}
    for key, array in read_bound_arrays(path, (), bound, again).items():
        access, _, name = key.partition("/")
        found.setdefault(access, {})[name] = array
    try:
        if not found or found.keys() - set(get_args(Access)):
            raise ResperturbError(f"it holds {', '.join(map(repr, found)) or 'nothing'}")
        return {access: signals_from(arrays, rows) for access, arrays in found.items()}
    except ResperturbError as error:
        raise ResperturbError(f"{path} does not hold the answers of a model ({error}); {again}.") from error


@contextmanager
def opened_store(folder: Path | None, plan: Plan) -> Iterator[Store]:
    """Take a folder for a plan and hold it; nothing is written before it is known to be free or of the same setup.

    Without a folder one is made, and removed at the end.

    Raises:
        UsageError: The folder holds another audit, or something else.
        BusyError: Another process is at work in it.
    """
    if folder is None:
        with TemporaryDirectory() as scratch, opened_store(Path(scratch), plan) as store:
            yield store
        return
    _check_free(folder, plan)
    with held(folder):
        _check_free(folder, plan)
        if _present(folder) != plan:
            kept = list((folder / MODELS).glob("*.npz"))
            if kept:
                _logger.warning("%s: the draws or the population changed; its models are queried again.", folder)
            for path in kept:
                path.unlink()
            write_bound_json(folder / PLAN_FILE, plan, {})
        yield Store(folder, plan)


def _present(folder: Path) -> Plan | None:
    path, remedy = folder / PLAN_FILE, f"delete it, or choose another folder than {folder}"
    return _read(Plan, path, PLAN_SCHEMA, remedy) if path.exists() else None


def _read(kind: type[T], path: Path, schema: int, remedy: str) -> T:
    """Read a file of this version, as it was written."""
    if read_json(_Version, path, remedy).schema != schema:
        raise UsageError(f"{path} {OTHER_VERSION}.")
    return read_bound_json(kind, path, None, remedy)


def _check_free(folder: Path, plan: Plan) -> None:
    """Refuse a folder that holds another audit, or something else."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; out= must name a folder.")
    # Looked at first, or it could be what another process writes after it was seen that there is no plan.
    foreign = folder.exists() and any(not item.name.startswith(".") for item in folder.iterdir())
    present = _present(folder)
    if present is None:
        if foreign:
            raise UsageError(f"{folder} exists and holds no audit; choose another out=.")
        return
    if not any((folder / MODELS).glob("*")):
        if present != plan and (folder / AUDIT_FILE).exists():
            _logger.warning("%s: its audit, which trained nothing, is replaced.", folder)
        return
    changed = [
        name
        for name, value in asdict(plan).items()
        if name not in ("draws", "population") and asdict(present)[name] != value
    ]
    if changed:
        # The choice of the population follows from the seed and the groups.
        causes = [name for name in changed if name not in ("groups", "kinds", "rows")]
        changed = ["seed"] if "seed" in changed else causes or changed
        raise UsageError(
            f"{folder} holds another audit (other {', '.join(changed)}), whose models would not be comparable. "
            "Choose another out=, or delete the folder."
        )


@dataclass(frozen=True)
class _Version:
    schema: int = 0


@dataclass(frozen=True)
class _ScoresSchema:
    files: dict[str, str]
    schema: int = 1


def keep_scores(folder: Path, scores: Scores) -> str:
    """Write the matrices of scores and a file that names them; return its digest, which the result is bound to."""
    arrays: dict[str, Array] = {**{name: getattr(scores, name) for name in _COLUMNS}, **scores.attacks}
    place = folder / SCORES
    place.mkdir(parents=True, exist_ok=True)
    for path in place.glob("*.npy"):
        if path.stem not in arrays:
            path.unlink()
    digests = {}
    for name, array in arrays.items():
        if not (isinstance(array, np.memmap) and Path(str(array.filename)) == place / f"{name}.npy"):
            write_array(place / f"{name}.npy", array)
        digests[f"{name}.npy"] = digest_of(place / f"{name}.npy")
    content = json.dumps({"schema": 1, "files": digests}, indent=2).encode()
    write_bytes(place / SCHEMA_FILE, content)
    return hashlib.sha256(content).hexdigest()


def open_scores(folder: Path, digest: str | None = None) -> Scores:
    """Open the scores that an audit kept; matrices are mapped into memory, not read.

    ``digest`` is that of their schema file, as the result has it; any will do if None.

    Raises:
        ResperturbError: A file is missing, damaged, or of another audit.
    """
    place = folder / SCORES
    if not (place / SCHEMA_FILE).exists():
        raise ResperturbError(f"{place / SCHEMA_FILE} is missing, and {AUDIT_FILE} was made with it; {AGAIN}.")
    if digest is not None and digest_of(place / SCHEMA_FILE) != digest:
        raise ResperturbError(f"{place} holds the scores of another audit than {AUDIT_FILE}; {AGAIN}.")
    schema = read_json(_ScoresSchema, place / SCHEMA_FILE, AGAIN)
    arrays: dict[str, Any] = {}
    for name, wanted in schema.files.items():
        path = place / name
        if Path(name).name != name or not path.exists():
            raise ResperturbError(f"{path} is missing, and {AUDIT_FILE} was made with it; {AGAIN}.")
        if digest_of(path) != wanted:
            raise ResperturbError(f"{path} was changed after it was written; {AGAIN}.")
        arrays[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
    if missing := [name for name in _COLUMNS if name not in arrays]:
        raise ResperturbError(f"{place} lacks {missing[0]}; {AGAIN}.")
    columns: dict[str, Any] = {name: np.asarray(arrays.pop(name)) for name in _COLUMNS}
    return Scores(**columns, attacks=arrays)


def save_audit(result: AuditResult, folder: Path) -> AuditResult:
    """Write the result of an audit, whose scores are there; it is the last file that an audit writes."""
    with suppress(ResperturbError):  # there may be none before it, or one that cannot be read
        old = read_audit(folder)
        if old.shadows.count > result.shadows.count:
            _logger.warning(
                "This audit replaces one with %d shadow models (AUC %.3f) in %s, and tried less. Rerun that one to "
                "have it back: its models are kept.",
                old.shadows.count,
                old.strongest.auc,
                folder,
            )
    write_bound_json(folder / AUDIT_FILE, result, result.digests)
    return replace(result, folder=folder)


def read_audit(folder: str | os.PathLike[str], digests: Mapping[str, str] | None = None) -> AuditResult:
    """Read the audit in a folder; plan, result and scores are checked against each other.

    The result must carry ``digests``, such as those of a run; any will do if None.

    Raises:
        ResperturbError: A file is missing, damaged, was changed, or is of another audit or version.
    """
    folder = Path(folder)
    path = folder / AUDIT_FILE
    found, plan = _read(AuditResult, path, SCHEMA, AGAIN), _present(folder)
    if plan is None:
        raise ResperturbError(f"{folder / PLAN_FILE} is missing; {AGAIN}.")
    if found.digests.get("question") != plan.question:
        raise ResperturbError(
            f"{path} is not the audit of {folder / PLAN_FILE}: it was copied from another folder, or the plan was; "
            f"{AGAIN}."
        )
    if other := [name for name, value in (digests or {}).items() if found.digests.get(name) != value]:
        raise ResperturbError(f"{path} belongs to another run (other {', '.join(other)}); {AGAIN}.")
    scores = open_scores(folder, found.digests.get("scores", ""))
    if missing := [attack.key for attack in found.fixed if attack.key not in scores.attacks]:
        raise ResperturbError(f"{folder / SCORES / missing[0]}.npy is missing; {AGAIN}.")
    return replace(found, folder=folder)

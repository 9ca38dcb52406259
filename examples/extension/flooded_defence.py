from collections.abc import Mapping
from typing import Any

from resperturb.frontiers import Defence, register_defence


def flooding(level: float | None, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"method": {"name": "flooding", "level": level}}


register_defence("flooding", Defence("flooding", strengths=(0.1, 0.3, 1.0), change=flooding))

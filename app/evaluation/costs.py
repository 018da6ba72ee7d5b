"""The cost of a pair by each method, in the file cost.json of a folder of `evaluate`."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from app.core.errors import InvalidRequestError
from app.evaluation.measurement import JudgedDataset
from app.evaluation.methods import METHODS, MethodName, PairCost

COST_NAME = "cost.json"

# Name of a data set -> method -> cost of a pair.
Costs = Mapping[str, Mapping[MethodName, PairCost]]


def costs_of(sources: Mapping[str, JudgedDataset]) -> Costs:
    """The cost of a pair by each method for which this run asked the judge everything."""
    return {
        name: {
            method: cost
            for method, one in METHODS.items()
            if (cost := one.cost(source.costs)) is not None
        }
        for name, source in sources.items()
    }


def read_costs(folder: Path) -> Costs:
    """The costs in a folder; empty without the file.

    Raises:
        InvalidRequestError: The file cannot be read.
    """
    file = folder / COST_NAME
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {
            name: {method: PairCost(**costs[method]) for method in METHODS if method in costs}
            for name, costs in content.items()
        }
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise InvalidRequestError(f"{file} cannot be read: {exc.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        raise InvalidRequestError(f"{file} was not written by evaluate") from None


def updated(known: Costs, later: Costs) -> Costs:
    """The known costs, replaced by later ones of the same data set and method."""
    return {
        name: {**known.get(name, {}), **later.get(name, {})}
        for name in dict.fromkeys((*known, *later))
    }


def to_json(costs: Costs) -> str:
    """The content of cost.json."""
    plain = {
        name: {method: asdict(cost) for method, cost in of_methods.items()}
        for name, of_methods in costs.items()
    }
    return json.dumps(plain, indent=1) + "\n"

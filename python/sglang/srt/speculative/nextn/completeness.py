"""Whether a checkpoint has every tensor of its MTP head, and what to say when not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from sglang.srt.arg_groups.launch_error import LaunchError
from sglang.srt.speculative.nextn.checkpoint import HeadCheckpoint
from sglang.srt.speculative.nextn.head_config import HeadConfig, SparseMLP
from sglang.srt.speculative.nextn.inventory import Inventory, StoredModule
from sglang.srt.speculative.nextn.layout import count_experts, count_layers
from sglang.srt.speculative.nextn.schemes import allowed_shapes

WAYS_ON = (
    "Use a checkpoint whose MTP head is complete, or start without "
    "--speculative-algorithm to serve this one with no speculation."
)

_EXPERT = re.compile(r"(?<=\.experts\.)\d+(?=\.)")


class ProblemKind(Enum):
    """What is wrong with one tensor, one module or one config value."""

    MISSING = "missing"
    LEFT_OVER = "left over"
    WRONG_SHAPE = "wrong shape"
    WRONG_DTYPE = "wrong dtype"
    MIXED = "mixed storage"
    CONFIG = "config"


@dataclass(frozen=True)
class Problem:
    """One reason why a head cannot be served.

    Attributes:
        name: the tensor, the module (mixed storage) or the config key.
        shard: file that was looked in.
        found, expected: shapes, dtypes or values; "" where there is none.
    """

    kind: ProblemKind
    name: str
    shard: str
    found: str
    expected: str

    def __str__(self) -> str:
        parts = [f"{self.kind.value}: {self.name}"]
        if self.shard:
            parts.append(f"in {self.shard}")
        facts = []
        if self.found:
            facts.append(f"found {self.found}")
        if self.expected:
            facts.append(f"expected {self.expected}")
        return " ".join(parts) + (f": {', '.join(facts)}" if facts else "")


class IncompleteHeadError(LaunchError):
    """A checkpoint's MTP head is not there, not complete, or not as configured.

    Attributes:
        problems: every tensor and config value at fault; empty if there is no head.
    """

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()):
        super().__init__(message)
        self.problems = problems


class NoHeadError(IncompleteHeadError):
    """Neither the config nor the weights of a checkpoint speak of an MTP head."""


def find_problems(
    checkpoint: HeadCheckpoint, config: HeadConfig, inventory: Inventory
) -> tuple[Problem, ...]:
    """Everything that keeps the head in `checkpoint` from being served as configured.

    Without shapes (an index file alone) only names are compared.
    """
    return (
        *_config_problems(checkpoint, config),
        *(
            problem
            for stored in inventory.modules
            for problem in _module_problems(stored, inventory, checkpoint)
        ),
        *_mixed_problems(inventory.modules),
        *(
            Problem(
                ProblemKind.LEFT_OVER,
                tensor.name,
                tensor.shard,
                "" if tensor.shape is None else f"{tensor.dtype} {list(tensor.shape)}",
                "",
            )
            for tensor in inventory.left_over
        ),
    )


def missing_head_error(
    checkpoint: HeadCheckpoint, config: HeadConfig
) -> IncompleteHeadError | None:
    """The error for a checkpoint without a single `mtp.*` tensor, else None.

    It is a NoHeadError where nothing promises a head: neither config nor names.
    """
    if checkpoint.tensors or checkpoint.absent:
        return None
    place = f"{checkpoint.root} ({checkpoint.source})"
    if checkpoint.misnamed:
        return IncompleteHeadError(
            f"{place} names its MTP tensors in a way that nothing loads: "
            f"{len(checkpoint.misnamed)} like {checkpoint.misnamed[0]}; expected "
            f"mtp.*, as in mtp.fc.weight. {WAYS_ON}"
        )
    if config.num_layers:
        return IncompleteHeadError(
            f"{place} has no MTP head: config.json says mtp_num_hidden_layers = "
            f"{config.num_layers}, but not one mtp.* tensor is among its weights. "
            "Whatever exported this checkpoint dropped the head. " + WAYS_ON
        )
    return NoHeadError(
        f"{place} has no MTP head: there is not one mtp.* tensor among its weights. "
        + WAYS_ON
    )


def incomplete_head_error(
    checkpoint: HeadCheckpoint, problems: tuple[Problem, ...]
) -> IncompleteHeadError:
    """One error that lists all `problems`, with experts of a kind on one line."""
    count = len(problems)
    lines = [
        f"The MTP head in {checkpoint.root} cannot be served as it is: {count} "
        f"{'problem' if count == 1 else 'problems'} in {_places(checkpoint)}.",
        *(f"  {line}" for line in describe_problems(problems)),
        WAYS_ON,
    ]
    return IncompleteHeadError("\n".join(lines), problems)


def describe_problems(problems: Iterable[Problem]) -> Iterator[str]:
    """One line a problem; experts that share one are written as a range."""
    groups: dict[Problem, list[int]] = {}
    for problem in problems:
        experts = _EXPERT.findall(problem.name)
        key = _with_name(problem, _EXPERT.sub("{}", problem.name))
        groups.setdefault(key, []).extend(int(expert) for expert in experts)
    for key, experts in groups.items():
        name = key.name.replace("{}", _ranges(experts)) if experts else key.name
        note = f" ({len(experts)} tensors)" if len(experts) > 1 else ""
        yield f"{_with_name(key, name)}{note}"


def _with_name(problem: Problem, name: str) -> Problem:
    return Problem(problem.kind, name, problem.shard, problem.found, problem.expected)


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return text if text.isdigit() else f"{{{text}}}"


def _places(checkpoint: HeadCheckpoint) -> str:
    return ", ".join(checkpoint.head_shards) or checkpoint.source


def _config_problems(
    checkpoint: HeadCheckpoint, config: HeadConfig
) -> Iterator[Problem]:
    names = checkpoint.tensors.keys() | checkpoint.absent.keys()
    source = checkpoint.source

    def contradiction(key: str, weights: str, value: object) -> Problem:
        return Problem(ProblemKind.CONFIG, key, "config.json", str(value), weights)

    layers = count_layers(names)
    if config.num_layers is not None and layers and layers != config.num_layers:
        yield contradiction(
            "mtp_num_hidden_layers",
            f"{layers}, the number of layers in {source}",
            config.num_layers,
        )
    experts = count_experts(names)
    stores_experts = any(".mlp.experts." in name for name in names)
    if not isinstance(config.mlp, SparseMLP):
        if stores_experts:
            yield contradiction(
                "model_type",
                f"a mixture-of-experts model: {source} has mtp.layers.*.mlp.experts",
                "a dense model",
            )
    elif layers and not stores_experts and f"{_DENSE_MLP}.weight" in names:
        yield contradiction(
            "model_type",
            f"a dense model: {source} has {_DENSE_MLP} and no experts",
            "a mixture-of-experts model",
        )
    elif experts and experts != config.mlp.num_experts:
        yield contradiction(
            "num_experts",
            f"{experts}, the number of experts in {source}",
            config.mlp.num_experts,
        )


_DENSE_MLP = "mtp.layers.0.mlp.down_proj"


def _module_problems(
    stored: StoredModule, inventory: Inventory, checkpoint: HeadCheckpoint
) -> Iterator[Problem]:
    module, scheme = stored.module, stored.scheme
    for suffix, expected in scheme.tensors.items():
        name = module.tensor_name(suffix)
        shapes = allowed_shapes(expected, module.shape, inventory.sizes)
        tensor = stored.found.get(suffix)
        if tensor is None:
            if suffix in scheme.required:
                shard = checkpoint.absent.get(name) or _places(checkpoint)
                elsewhere = checkpoint.misplaced.get(name)
                yield Problem(
                    ProblemKind.MISSING,
                    name,
                    shard,
                    f"it in {elsewhere}" if elsewhere else "",
                    _or(map(_brackets, shapes)),
                )
        elif tensor.shape is None:
            continue
        elif tensor.dtype not in expected.dtypes:
            yield Problem(
                ProblemKind.WRONG_DTYPE,
                name,
                tensor.shard,
                str(tensor.dtype),
                _or(expected.dtypes),
            )
        elif tensor.shape not in shapes:
            yield Problem(
                ProblemKind.WRONG_SHAPE,
                name,
                tensor.shard,
                _brackets(tensor.shape),
                _or(map(_brackets, shapes)),
            )


def _mixed_problems(modules: Iterable[StoredModule]) -> Iterator[Problem]:
    """Parts that the engine builds into one module must be stored in one way."""
    parts: dict[str, dict[str, StoredModule]] = {}
    for stored in modules:
        if stored.found:
            parts.setdefault(stored.module.built_as, {}).setdefault(
                stored.scheme.label, stored
            )
    for built_as, by_label in parts.items():
        if len(by_label) > 1:
            shards = {t.shard for s in by_label.values() for t in s.found.values()}
            found = ", ".join(
                f"{stored.module.name} {label}" for label, stored in by_label.items()
            )
            yield Problem(
                ProblemKind.MIXED,
                built_as,
                ", ".join(sorted(shards)),
                found,
                "one way of storage for all its parts",
            )


def _brackets(shape: tuple[int, ...]) -> str:
    return str(list(shape))


def _or(options: Iterable[str]) -> str:
    *most, last = options
    return f"{', '.join(most)} or {last}" if most else last

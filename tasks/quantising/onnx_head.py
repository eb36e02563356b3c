"""What of a detector's graph must stay in float, found by how the graph is wired, never by names.

A detector ends in branches that meet again: boxes of hundreds of pixels beside scores under 1. One scale for both
zeroes the scores. So all that follows the last convolutions stays in float, and with it the branches that lead to
them: every operator from which no more than one of the last convolutions can be reached. What feeds several branches
is backbone and neck, and may be quantised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WEIGHTED = frozenset(("Conv", "ConvTranspose", "Gemm"))
"""Operators with learned weights that may end a branch."""


def name_nodes(model: Any) -> None:
    """Give every operator of an ONNX model a name of its own, in place: operators are left out by name."""
    taken: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}:{number}"
        taken.add(node.name)


def head_nodes(model: Any) -> tuple[str, ...]:
    """Names of the operators of the head, in the order of the graph.

    Worked example: trunk -> (boxes: Conv, Sigmoid) and (scores: Conv, Sigmoid) -> Concat. Both convolutions are last
    ones; the trunk reaches two of them, all others one or none and are the head. A graph without branches keeps its
    only last convolution in float, and what follows it.
    """
    nodes = list(model.graph.node)
    reached = _last_convolutions_reached(nodes)
    lasts = frozenset().union(*reached.values())
    if len(lasts) > 1:
        return tuple(node.name for node in nodes if len(reached[node.name]) <= 1)
    return tuple(node.name for node in nodes if not reached[node.name] or node.name in lasts)


def _last_convolutions_reached(nodes: Sequence[Any]) -> dict[str, frozenset[str]]:
    """By operator, the last convolutions that can be reached from it, itself included.

    A convolution is a last one when no other follows. Operators of an ONNX graph stand in order of use, so one walk
    from the end meets every reader before what it reads from.
    """
    of_tensor: dict[str, frozenset[str]] = {}
    found: dict[str, frozenset[str]] = {}
    for node in reversed(nodes):
        reached = frozenset().union(*(of_tensor.get(name, frozenset()) for name in node.output))
        if node.op_type in WEIGHTED and not reached:
            reached = frozenset((node.name,))
        found[node.name] = reached
        for name in node.input:
            of_tensor[name] = of_tensor.get(name, frozenset()) | reached
    return found

"""A digest of a lowered program that does not depend on the order of what has none.

The text of a program changes when fields of a pytree change places: arguments, what loops carry, and results come in
another order. The digest here is of the graph of operations and values: calls are put in place, and each node gets a
colour from its kind and, again and again, from the colours around it (Weisfeiler and Lehman), until that separates no
more nodes. The same operations on the same values in the same order of operands have the same digest.
"""

import hashlib
from collections import defaultdict
from typing import Any

ROUNDS = 200
PASSING_ON = ("stablehlo.while", "stablehlo.case", "stablehlo.if")
"""Their values come in tuples, in whose order there is no meaning."""


def digest(module: Any) -> str:
    """The digest of an MLIR module as `jax.jit(f).lower(...).compiler_ir()` gives it."""
    graph = _Graph(module)
    return graph.digest()


class _Graph:
    """`labels[node]`, and `around[node]`: pairs of the part that a neighbour plays and its number."""

    def __init__(self, module: Any) -> None:
        self.labels: list[str] = []
        self.around: dict[int, list[tuple[str, int]]] = defaultdict(list)
        operations = module.body.operations
        self.functions = {str(f.attributes["sym_name"]): f.regions[0].blocks[0] for f in operations}
        main = self.functions['"main"']
        values = {argument: self.node(f"argument {argument.type}") for argument in main.arguments}
        for result in self.block(main, values, ""):
            self.edge(self.node("result"), "of", result)

    def node(self, label: str) -> int:
        self.labels.append(label)
        return len(self.labels) - 1

    def edge(self, operation: int, part: str, value: int) -> None:
        self.around[operation].append((part, value))
        self.around[value].append((f"{part} of", operation))

    def block(self, block: Any, values: dict[Any, int], place: str) -> list[int]:
        """Add the operations of a block; the nodes of what it returns."""
        for operation in block.operations:
            operation = operation.operation
            given = [values[operand] for operand in operation.operands]
            if operation.name in ("func.return", "stablehlo.return"):
                return given
            if operation.name == "func.call":
                called = self.functions[f'"{str(operation.attributes["callee"]).lstrip("@").strip(chr(34))}"']
                inside = dict(zip(called.arguments, given, strict=True))
                returned = self.block(called, inside, place)
                values |= dict(zip(operation.results, returned, strict=True))
                continue
            self.operation(operation, given, values, place)
        raise AssertionError("a block without a return")

    def operation(self, operation: Any, given: list[int], values: dict[Any, int], place: str) -> None:
        names = sorted(a if isinstance(a, str) else a.name for a in operation.attributes)  # JAX 0.7 gives pairs
        attributes = [f"{name}={operation.attributes[name]}" for name in names]
        own = self.node(f"{place}{operation.name} {' '.join(attributes)}")
        results = [self.node(f"value {result.type}") for result in operation.results]
        values |= dict(zip(operation.results, results, strict=True))
        passes = operation.name in PASSING_ON
        places = []
        if passes:  # a node for each place in the tuple, and what belongs to it
            places = [self.node(f"place {result.type}") for result in operation.results]
            for node in places:
                self.edge(own, "has", node)

        def join(part: str, nodes: list[int]) -> None:
            for i, node in enumerate(nodes):
                if passes and len(nodes) == len(places):
                    self.edge(places[i], part, node)
                else:
                    self.edge(own, f"{part} {i}", node)

        if operation.name == "stablehlo.while" or not passes:
            join("in", given)
        else:
            self.edge(own, "choice", given[0])
        join("out", results)
        for number, region in enumerate(operation.regions):
            for block in region.blocks:
                arguments = [self.node(f"inside {argument.type}") for argument in block.arguments]
                join(f"argument {number}", arguments)
                inside = values | dict(zip(block.arguments, arguments, strict=True))
                returned = self.block(block, inside, f"{place}{operation.name} {number}/")
                if operation.name == "stablehlo.while" and number == 0:
                    self.edge(own, "condition", returned[0])
                else:
                    join(f"return {number}", returned)

    def digest(self) -> str:
        colours = [_hash(label) for label in self.labels]
        distinct = len(set(colours))
        for _ in range(ROUNDS):
            colours = [
                _hash(colour, *sorted(f"{part} {colours[other]}" for part, other in self.around[node]))
                for node, colour in enumerate(colours)
            ]
            before, distinct = distinct, len(set(colours))
            if distinct == before:
                break
        return _hash(*sorted(colours))


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()

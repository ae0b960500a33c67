"""Settings: each is declared once, as a field of a dataclass.

A declaration has a name, a type, a default, bounds, a line of help, and an effect on a run. From it follow the
constructor, the checks, the parameter list of a docstring, the command line, the saved configuration and the identity
of a run.

The effect is what another value changes:

- "steps": the numbers of a training step. A resumed run must have the same value.
- "end": only when training ends, or which model is kept.
- "none": nothing that is learned, such as progress or folders.

Settings that change behaviour are `Behaviour` objects: frozen, comparable, and written as plain values.
"""

import ast
import hashlib
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

Effect = Literal["steps", "end", "none"]
C = TypeVar("C")
_MARK = "_made_of_settings"  # of classes
_KEY = "setting"  # of the metadata of a dataclass field


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting."""

    help: str
    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None
    effect: Effect | Callable[[Any], Effect] = "steps"
    neutral: object = UNSET
    fits: Callable[[Any], bool] | None = None
    wanted: str | None = None
    name: str = ""
    kind: object = None
    default: object = UNSET
    keyword: bool = True

    def check(self, value: object, owner: str = "") -> None:
        """Raise ValueError if the setting cannot have this value."""
        fits = _fits(value, self.kind, self) if self.fits is None else self.fits(value)
        if not fits:
            wanted = self.wanted or ", or ".join(_wanted(option, self) for option in _options(self.kind))
            raise ValueError(f"{owner}{self.name} is {value!r}: it must be {wanted}")

    def effect_in(self, settings: object) -> Effect:
        return self.effect(settings) if callable(self.effect) else self.effect


def setting(
    default: object,
    help: str,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
    effect: Effect | Callable[[Any], Effect] = "steps",
    neutral: object = UNSET,
    fits: Callable[[Any], bool] | None = None,
    wanted: str | None = None,
    kw_only: bool = True,
) -> Any:
    """Declare a setting, as the default of a dataclass field.

    `least`, `above`, `below` and `most` bound numbers. `neutral` is the value at which the setting has no effect, as if
    it did not exist. `fits` replaces the check of the type; `wanted` describes the values that it accepts.
    """
    about = Setting(help, least, above, below, most, effect, neutral, fits, wanted)
    return field(default=default, kw_only=kw_only, metadata={_KEY: about})


@cache
def declared(cls: type) -> dict[str, Setting]:
    """The settings of a class in the order of its constructor. A changed default keeps the declaration it changes."""
    hints = get_type_hints(cls)
    found: dict[str, Setting] = {}
    for one in sorted(fields(cls), key=lambda one: bool(one.kw_only)):
        about = _declaration(cls, one)
        if about is not None and one.init:
            keyword = bool(one.kw_only)
            found[one.name] = replace(about, name=one.name, kind=hints[one.name], default=one.default, keyword=keyword)
    return found


def _declaration(cls: type, one: Field) -> Setting | None:
    for base in cls.__mro__:
        known = base.__dict__.get("__dataclass_fields__", {}).get(one.name)
        if known is not None and _KEY in known.metadata:
            return known.metadata[_KEY]
    return None


@dataclass_transform(field_specifiers=(field,))
def with_settings(cls: type[C]) -> type[C]:
    """Make a class a dataclass of settings, with their list in its docstring."""
    dataclass(eq=False, repr=False, kw_only=True)(cls)
    cls.__doc__ = with_parameters(cls)
    setattr(cls, _MARK, True)
    return cls


def has_settings(value: object) -> bool:
    """Whether an object has declared settings: a behaviour object or an estimator."""
    return getattr(type(value), _MARK, False)


def check(settings: object) -> None:
    """Raise ValueError for the first setting with a wrong value; the message names it and the values allowed."""
    for name, about in declared(type(settings)).items():
        value = getattr(settings, name)
        about.check(value)
        for number, part in enumerate(value if isinstance(value, list | tuple) else (), 1):
            if has_settings(part) and not isinstance(part, Behaviour):
                try:
                    check(part)
                except ValueError as error:
                    raise ValueError(f"{name}, number {number}: {error}") from None


def is_whole(value: object, least: float | None = None) -> bool:
    """Whether the value is a whole number, and not below `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return least is None or bool(value >= least)


# --- behaviour objects ------------------------------------------------------------------------------------------------


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Behaviour:
    """A setting that changes behaviour: a frozen object, equal to others with the same values.

    Subclasses are frozen dataclasses with settings as fields. The constructor checks them. `written` and `text` convert
    them to plain values and to text; `read` and `parse` convert them back.
    """

    abstract: ClassVar[bool] = True

    def __init_subclass__(cls, *, abstract: bool = False, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.abstract = abstract
        dataclass(frozen=True, repr=False)(cls)
        cls.__doc__ = with_parameters(cls)
        setattr(cls, _MARK, True)

    def __post_init__(self) -> None:
        for name, about in declared(type(self)).items():
            value = getattr(self, name)
            about.check(value, f"{type(self).__name__}.")
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())

    def __repr__(self) -> str:
        return text(self)


B = TypeVar("B", bound=Behaviour)


def kinds(base: type[B]) -> dict[str, type[B]]:
    """The concrete classes of a kind of behaviour, by name."""
    found = {} if base.abstract else {base.__name__: base}
    for sub in base.__subclasses__():
        found |= kinds(sub)
    return found


def written(value: object) -> Any:
    """Convert a value of a setting to JSON types. Objects with settings become {"kind": ..., **settings}."""
    if has_settings(value):
        return {"kind": type(value).__name__} | {n: written(getattr(value, n)) for n in declared(type(value))}
    if isinstance(value, Mapping):
        return {str(name): written(one) for name, one in value.items()}
    named = hasattr(value, "_fields")  # a raw optax transformation is a named tuple of functions
    if isinstance(value, list | tuple | np.ndarray) and not named:
        return [written(one) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return {"custom": describe(value)}


def read(stored: object, kind: object) -> Any:
    """The value of a setting of this type from its written form. Raises ValueError for a kind that is not allowed."""
    if isinstance(stored, Mapping) and "kind" in stored:
        allowed = classes(kind)
        cls = allowed.get(str(stored["kind"]))
        if cls is None:
            raise ValueError(
                f"the kind {stored['kind']!r} is not known: it must be one of {', '.join(sorted(allowed))}"
            )
        about = declared(cls)
        values = {name: value for name, value in stored.items() if name != "kind"}
        if unknown := sorted(set(values) - set(about)):
            raise ValueError(f"{cls.__name__} has no setting {unknown[0]!r}")
        return cls(**{name: read(value, about[name].kind) for name, value in values.items()})
    if isinstance(stored, Mapping):
        return {name: read(one, kind) for name, one in stored.items()}
    if isinstance(stored, list):
        return tuple(read(one, kind) for one in stored)
    return stored


def classes(kind: object) -> dict[str, type]:
    """The classes with settings that a type allows, by name."""
    if isinstance(kind, type) and issubclass(kind, Behaviour):
        return dict(kinds(kind))
    if isinstance(kind, type) and getattr(kind, _MARK, False):
        return {kind.__name__: kind}
    found: dict[str, type] = {}
    for part in get_args(kind):
        if part is not kind:
            found |= classes(part)
    return found


def has_classes(kind: object) -> bool:
    """Whether a type allows objects with settings."""
    return bool(classes(kind))


def text(value: object) -> str:
    """A value as text for the command line: `SimilarWindows(spare=2.0)`. Defaults are left out."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text, value))}]"
    if not has_settings(value):
        return repr(value)
    about = declared(type(value))
    given = {name: getattr(value, name) for name in about}
    shown = [f"{name}={text(one)}" for name, one in given.items() if not _same(one, about[name].default)]
    return f"{type(value).__name__}({', '.join(shown)})"


def parse(source: str, kind: object) -> Any:
    """The value of a text: a literal, or an object such as `SimilarWindows(spare=2)`.

    Nothing is evaluated: arguments are literals or objects of the kinds that the setting allows.
    """
    source = source.strip()
    if source in literals(kind):
        return source
    if source == "None" and type(None) in _options(kind):
        return None
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    known = isinstance(tree, ast.Name) and tree.id in classes(kind)
    if str in _options(kind) and not known and not isinstance(tree, ast.Call | ast.Dict | ast.List | ast.Tuple):
        return source
    if tree is None:
        raise ValueError(f"{source!r} is not understood: write a value, or NAME(setting=value, ...)")
    return _parsed(tree, kind, source)


def _parsed(node: ast.expr, kind: object, source: str) -> Any:
    allowed = classes(kind)
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(_parsed(part, kind, source) for part in node.elts)
    if isinstance(node, ast.Name) and node.id in allowed:
        return allowed[node.id]()
    if isinstance(node, ast.Name) and node.id in literals(kind):
        return node.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        cls = allowed.get(node.func.id)
        if cls is None:
            known = ", ".join(sorted(allowed)) or "none"
            raise ValueError(f"{node.func.id} is not known in {source!r}: it must be one of {known}")
        about = declared(cls)
        first = [name for name, one in about.items() if not one.keyword]
        if len(node.args) > len(first):
            raise ValueError(
                f"{source!r} gives {len(node.args)} values without a name: {cls.__name__} takes {len(first)}"
            )
        values = {name: _parsed(part, about[name].kind, source) for name, part in zip(first, node.args, strict=False)}
        for part in node.keywords:
            if part.arg not in about:
                raise ValueError(f"{cls.__name__} has no setting {part.arg!r}: it has {', '.join(about) or 'none'}")
            if part.arg in values:
                raise ValueError(f"{source!r} gives {part.arg} twice")
            values[part.arg] = _parsed(part.value, about[part.arg].kind, source)
        return cls(**values)
    if isinstance(node, ast.Name) and str in _options(kind):
        return node.id  # shells take quotes away
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        names = ", ".join([*allowed, *map(repr, literals(kind))])
        choices = f", or one of {names}" if names else ""
        raise ValueError(
            f"{_said_node(node)}{source[:200]!r} is not understood: write a number, True, False, None, a text in "
            f"quotes{choices}"
        ) from None


def _said_node(node: ast.expr) -> str:
    try:
        return f"{ast.unparse(node)[:60]!r} in "
    except RecursionError:
        return ""


def literals(kind: object) -> tuple[str, ...]:
    """The words that a type allows."""
    if get_origin(kind) is Literal:
        return tuple(one for one in get_args(kind) if isinstance(one, str))
    return tuple(word for part in get_args(kind) for word in literals(part))


# --- the identity of a run --------------------------------------------------------------------------------------------


def identity(settings: object) -> dict[str, Any]:
    """The settings that change the numbers of a training step, as plain values. Neutral ones are left out."""
    told = {}
    for name, about in declared(type(settings)).items():
        value = getattr(settings, name)
        if about.effect_in(settings) == "steps" and not _same(value, about.neutral):
            nested = has_settings(value)
            told[name] = {"kind": type(value).__name__, **identity(value)} if nested else written(value)
    return told


def differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """The differences between the identities of two runs, in words."""
    found = []
    for name in sorted({*now, *before}):
        a, b = now.get(name, UNSET), before.get(name, UNSET)
        if a != b:
            found.append(f"{name} {_said('is', a)} and {_said('was', b)}")
    return found


def _said(verb: str, value: object) -> str:
    if value is UNSET:
        return f"{verb} not set"
    if isinstance(value, Mapping) and "kind" in value:
        inside = ", ".join(f"{n}={v!r}" for n, v in value.items() if n != "kind")
        return f"{verb} {value['kind']}({inside})"
    return f"{verb} {value!r}"


def describe(value: object) -> str:
    """A description of the user's own object: its class, and a hash of its arrays' shapes. Its code is not stored."""
    import jax

    shapes = [f"{getattr(x, 'dtype', type(x).__name__)}{list(np.shape(x))}" for x in jax.tree.leaves(value)]
    digest = hashlib.sha256(" ".join(shapes).encode()).hexdigest()[:8]
    return f"{type(value).__name__} with {len(shapes)} arrays, {digest}"


def _same(a: object, b: object) -> bool:
    if a is b:
        return True
    numbers = (int, float, np.integer, np.floating)
    alike = type(a) is type(b) or all(isinstance(x, numbers) and not isinstance(x, bool) for x in (a, b))
    return alike and not isinstance(a, np.ndarray) and bool(a == b)


# --- types in words ---------------------------------------------------------------------------------------------------


def _options(kind: object) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _fits(value: object, kind: object, about: Setting) -> bool:
    if len(options := _options(kind)) > 1:
        return any(_fits(value, option, about) for option in options)
    if kind is Any:
        return True
    if kind is None or kind is type(None):
        return value is None
    if get_origin(kind) is Literal:
        return any(type(value) is type(one) and value == one for one in get_args(kind))
    if get_origin(kind) is tuple:
        (each, *_) = get_args(kind)
        return isinstance(value, tuple) and all(_fits(one, each, about) for one in value)
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if isinstance(value, bool) and kind in (int, float):
        return False
    if kind is int:
        return isinstance(value, int | np.integer) and _within(int(value), about)
    if kind is float:
        number = isinstance(value, int | float | np.integer | np.floating)
        return number and _is_finite(value) and _within(float(value), about)
    return isinstance(value, cast(type, get_origin(kind) or kind))


def _is_finite(value: int | float | np.number) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _within(value: float, about: Setting) -> bool:
    return (
        (about.least is None or value >= about.least)
        and (about.above is None or value > about.above)
        and (about.below is None or value < about.below)
        and (about.most is None or value <= about.most)
    )


def _wanted(kind: object, about: Setting) -> str:
    if kind is None or kind is type(None):
        return "None"
    if get_origin(kind) is Literal:
        words = ", ".join(map(repr, get_args(kind)))
        return words if len(get_args(kind)) == 1 else f"one of {words}"
    if get_origin(kind) is tuple:
        each = (_wanted(option, about) for option in _options(get_args(kind)[0]))
        return f"a tuple of values that are each {' or '.join(each)}"
    if kind is bool:
        return "True or False"
    if kind is int or kind is float:
        return _number(kind, about)
    if isinstance(kind, type) and issubclass(kind, Behaviour):
        return f"one of {', '.join(f'{name}(...)' for name in kinds(kind))}"
    return {str: "a text", Path: "a path"}.get(kind, f"a {getattr(kind, '__name__', kind)}")


def _number(kind: type, about: Setting) -> str:
    what = "whole number" if kind is int else "number"
    if kind is float and about.above == 0 and about.below is None and about.most is None:
        return "a positive number"
    bounds = {"of at least": about.least, "above": about.above, "below": about.below, "of at most": about.most}
    said = " and ".join(f"{words} {value:g}" for words, value in bounds.items() if value is not None)
    return f"a {what} {said}".strip()


# --- documentation ----------------------------------------------------------------------------------------------------


def with_parameters(cls: type) -> str:
    """The docstring of a class with a list of its settings, from their declarations."""
    doc = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    if doc.startswith(f"{cls.__name__}("):  # dataclass makes one of the signature where there is none
        doc = ""
    about = declared(cls)
    if not about:
        return doc
    lines = [f"{name} : {one.help} Default: {text(one.default)}." for name, one in about.items()]
    return f"{doc}\n\nParameters\n----------\n" + "\n".join(lines) + "\n"

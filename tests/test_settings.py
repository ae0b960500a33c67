"""Settings: each is declared once, and everything else follows from it."""

import copy
import inspect
import json
import random
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

import rpgssm
from rpgssm import (
    CPC,
    KVAE,
    RKN,
    RPGSSM,
    SGD,
    Adam,
    Cholesky,
    Diagonal,
    FixedFeatures,
    Free,
    PooledMarginal,
    Prior,
    RandomFlips,
    RandomWindows,
    SimilarWindows,
    Stack,
    Stopping,
    WideLayer,
)
from rpgssm.cli import fit_command, main, settings_group
from rpgssm.estimator import Estimator, GradientEstimator
from rpgssm.estimator._moved import MOVED
from rpgssm.methods import all_methods
from rpgssm.settings import (
    UNSET,
    Behaviour,
    check,
    declared,
    differences,
    identity,
    kinds,
    parse,
    read,
    setting,
    text,
    written,
)
from rpgssm.training import Training

ROOT = Path(__file__).resolve().parent.parent
METHODS = list(all_methods().values())
TRAINED = [cls for cls in METHODS if issubclass(cls, GradientEstimator)]
OWNERS = [*METHODS, Training, *(cls for cls in kinds(Behaviour).values())]
NUMBERS = (1, 2, 3, 4, 6, 0.25, 0.5, 0.75)
WORDS = ("linear", "mlp", "smooth", "constant", "random", "mean-field", "auto", "sigmoid", "conv", "cholesky")


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(compile_quickly):
    with compile_quickly():
        yield


def named(classes):
    return pytest.mark.parametrize("cls", classes, ids=lambda cls: cls.__name__)


def other_values(about) -> Iterator[Any]:
    """Values that a setting may have instead of its default."""
    objects = (make(cls) for make in (made, changed) for cls in kinds(Behaviour).values())
    for value in chain(NUMBERS, WORDS, (False, True, None), objects):
        try:
            about.check(value)
        except ValueError:
            continue
        if value != about.default:
            yield value


def other(about) -> Any:
    value = next(other_values(about), UNSET)
    assert value is not UNSET, f"add a value for {about.name} to this test"
    return value


def made(cls):
    """An object with default settings."""
    return Stack([RPGSSM(3), RPGSSM(2, WideLayer(8))]) if cls is Stack else cls()


def changed(cls):
    """An object none of whose settings has its default."""
    values = {name: other(about) for name, about in declared(cls).items() if name != "stages"}
    return Stack([RPGSSM(3), changed(RPGSSM)]) if cls is Stack else made(cls).__class__(**values)


# --- declarations -----------------------------------------------------------------------------------------------------


@named(OWNERS)
def test_every_field_of_a_constructor_is_declared(cls):
    about = declared(cls)
    assert list(inspect.signature(cls).parameters) == list(about)
    for name, one in about.items():
        assert one.name == name
        assert one.help.endswith((".", ")")), name
        assert f"\n{name} : {one.help} Default: {text(one.default)}." in cls.__doc__


@named([cls for cls in OWNERS if cls is not Stack])
def test_defaults_pass_their_own_checks(cls):
    check(cls())


def test_a_changed_default_keeps_the_declaration():
    of_all, of_cpc = declared(Training)["learning_rate"], declared(CPC)["learning_rate"]
    assert (of_all.default, of_cpc.default) == (3e-3, 1e-3)
    assert (of_all.help, of_all.least, of_all.effect) == (of_cpc.help, of_cpc.least, of_cpc.effect)


def test_rpgssm_is_small_enough():
    assert len(declared(RPGSSM)) <= 20
    assert not any("stage" in name or "widen" in name for name in declared(RPGSSM))


# --- checks -----------------------------------------------------------------------------------------------------------

WRONG: dict[type, tuple[object, ...]] = {
    bool: ("no", "False", 0, 1, 1.0, None),
    int: (2.5, 2.0, True, "2", float("nan"), float("inf"), [2], np.float64(2), np.bool_(True)),
    float: (True, "0.1", float("nan"), float("inf"), -float("inf"), np.float32("nan"), [0.1], 10**400, 1j),
}


@named(OWNERS)
def test_values_of_the_wrong_type_are_refused(cls, unchecked_types):
    for name, about in declared(cls).items():
        options = getattr(about.kind, "__args__", (about.kind,))
        numbers = [kind for kind in WRONG if kind in options]
        if about.fits is not None or len(numbers) != 1:
            continue
        for wrong in WRONG[numbers[0]]:
            if wrong is None and type(None) in options:
                continue
            if isinstance(wrong, str) and str in options:
                continue
            with pytest.raises(ValueError, match=rf"\b{name} is {re.escape(repr(wrong))}: it must be "):
                check(cls(**{name: wrong}))


@named(OWNERS)
def test_bounds_hold(cls):
    for name, about in declared(cls).items():
        for bound, wrong in (("least", -1), ("most", 1), ("above", 0), ("below", 0)):
            limit = getattr(about, bound)
            if limit is not None:
                with pytest.raises(ValueError, match=f"{name} is "):
                    about.check(limit + wrong)


def test_numbers_of_numpy_are_numbers(unchecked_types):
    for value in (np.int64(3), np.int8(3), np.uint16(3)):
        model = RPGSSM().set_params(latent_dim=value, max_steps=value)
        check(model)
        stored = json.loads(json.dumps(written(model)))
        assert stored["latent_dim"] == 3
        assert identity(model) == identity(RPGSSM(3, max_steps=3))
    assert SimilarWindows(side=np.int64(4)) == SimilarWindows(side=4)
    assert Adam(clip_norm=np.float32(0.5)) == Adam(clip_norm=0.5)
    check(RPGSSM().set_params(verbose=np.bool_(False), posterior_gradient=np.bool_(True)))


def test_behaviours_are_values():
    assert SimilarWindows() == SimilarWindows(spare=1.5)
    assert hash(SimilarWindows()) == hash(SimilarWindows(spare=1.5))
    assert SimilarWindows() != SimilarWindows(spare=2.0)
    assert SimilarWindows() != RandomWindows()
    assert Diagonal() != Cholesky()
    assert Prior(start=np.eye(2)) == Prior(start=[[1.0, 0.0], [0.0, 1.0]])
    assert hash(Prior(start=np.eye(2))) == hash(Prior(start=((1, 0), (0, 1))))
    with pytest.raises(AttributeError):
        SimilarWindows().spare = 2.0  # pyright: ignore[reportAttributeAccessIssue]
    assert repr(SimilarWindows(spare=2.0)) == "SimilarWindows(spare=2.0)"
    assert repr(copy.deepcopy(Free(start="smooth"))) == "Free(start='smooth')"


# --- written and read, as text and as plain values --------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Estimator):
        return type(a) is type(b) and all(same(getattr(a, name), getattr(b, name)) for name in declared(type(a)))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@named(OWNERS)
@pytest.mark.parametrize("make", [made, changed])
def test_settings_come_back_from_plain_values_and_from_text(cls, make, unchecked_types):
    source = make(cls)
    for name, about in declared(cls).items():
        value = getattr(source, name)
        assert same(read(json.loads(json.dumps(written(value))), about.kind), value), name
        given = value if isinstance(value, str) else text(value)
        assert same(parse(given, about.kind), value), name


@named(kinds(Behaviour).values())
def test_objects_come_back_too(cls):
    base = cls.__mro__[-3]  # the kind of behaviour, below `Behaviour` and `object`
    for value in (cls(), changed(cls)):
        assert same(read(json.loads(json.dumps(written(value))), base), value)
        assert same(parse(text(value), base), value)
        assert same(parse(text(value), base | None), value)
        assert parse("None", base | None) is None


def test_mappings_of_encoders_come_back():
    about = declared(RPGSSM)["encoder"]
    value = {"left": "mlp", "right": WideLayer(8)}
    assert read(json.loads(json.dumps(written(value))), about.kind) == value


def test_what_can_be_told_as_text():
    about = declared(RPGSSM)
    for source, name, value in [
        ("SimilarWindows", "sampler", SimilarWindows()),
        (" SimilarWindows( spare = 2 ) ", "sampler", SimilarWindows(spare=2)),
        ("FixedFeatures(64, components=3)", "encoder", FixedFeatures(64, components=3)),
        ("mlp", "encoder", "mlp"),
        ("Free(start=[[0.5, 0], [0, 0.5]])", "prior", Free(start=0.5 * np.eye(2))),
        ("Prior(start='smooth', scale=-0.5e0)", "prior", ValueError),
        ("auto", "window", "auto"),
        ("12", "window", 12),
        ("None", "window", None),
        ("auto", "marginal", "auto"),
        ("PooledMarginal(4)", "marginal", PooledMarginal(4)),
        ("a/folder (1)", "checkpoint_dir", "a/folder (1)"),
    ]:
        if value is ValueError:
            with pytest.raises(ValueError, match=r"Prior\.scale is -0\.5"):
                parse(source, about[name].kind)
        else:
            assert same(parse(source, about[name].kind), value), source


CODE = """
__import__('os').system('touch {file}')
__import__("pathlib").Path("{file}").touch()
open('{file}', 'w')
exec("open('{file}', 'w')")
SimilarWindows(spare=open('{file}', 'w'))
SimilarWindows(spare=(lambda: open('{file}', 'w'))())
SimilarWindows(spare=[open('{file}', 'w') for _ in '1'])
SimilarWindows(**dict(spare=2))
SimilarWindows(**open('{file}', 'w'))
SimilarWindows(*[2])
SimilarWindows.__init__
SimilarWindows().__class__
SimilarWindows().__class__.__mro__[-1].__subclasses__()
SimilarWindows().plan()
RandomWindows() if open('{file}', 'w') else SimilarWindows()
RandomWindows() or open('{file}', 'w')
(x := SimilarWindows())
f"{{open('{file}', 'w')}}"
SimilarWindows(spare=f"{{open('{file}', 'w')}}")
SimilarWindows(spare=1+1)
SimilarWindows(spare=2**100000000)
SimilarWindows(spare=2)(3)
SimilarWindows(spare=2)[0]
SimilarWindows(spare=2, spare=3)
SimilarWindows(2)
SimilarWindows(spares=2)
[x for x in ()]
{{x for x in ()}}
lambda: 1
yield 1
await x
Sampler()
RandomFlips()
Behaviour()
object
str
{{}}[0]
{{[]: 1}}
SimilarWindows(spare={{[]: 1}})
SimilarWindows(spare=
SimilarWindows)
import os
"""


@pytest.mark.parametrize("source", [*CODE.strip().split("\n"), "", "\x00", "\ud800", "a\nb"])
def test_code_is_refused_and_not_run(source, tmp_path):
    file = tmp_path / "file"
    source = source.format(file=file) if source in CODE else source
    message = r"is not (understood|known)|has no setting|values without a name|it must be|twice"
    with pytest.raises(ValueError, match=message):
        parse(source, declared(RPGSSM)["sampler"].kind)
    assert not file.exists()


@pytest.mark.parametrize("depth", [50, 150, 1000, 100_000])
@pytest.mark.parametrize(
    ("start", "middle", "end"),
    [
        ("[", "", "]"),
        ("(", "", ",)"),
        ("-", "1", ""),
        ("Free(start=", "", ")"),
        ("{1: ", "1", "}"),
        ("a.", "b", ""),
        ("1+", "1", ""),
    ],
)
def test_huge_nesting_is_refused(depth, start, middle, end):
    about = declared(RPGSSM)["prior"]
    with pytest.raises(ValueError):  # noqa: PT011
        about.check(parse(start * depth + middle + end * depth, about.kind))


def test_noise_is_refused():
    """Whatever is written, it is a sampler or a ValueError."""
    draw = random.Random(0)
    alphabet = [*"=()[]{}2,'.:*- ", "SimilarWindows", "RandomWindows", "spare"]
    for _ in range(2000):
        source = "".join(draw.choices(alphabet, k=draw.randint(1, 8)))
        try:
            found = parse(source, declared(RPGSSM)["sampler"].kind)
        except ValueError:
            continue
        try:
            declared(RPGSSM)["sampler"].check(found)
        except ValueError:
            continue
        assert type(found) in (SimilarWindows, RandomWindows)


def test_stored_objects_are_only_of_the_kinds_allowed():
    kind = declared(RPGSSM)["sampler"].kind
    for stored, message in [
        ({"kind": "Sheep"}, "the kind 'Sheep' is not known: it must be one of RandomWindows, SimilarWindows"),
        ({"kind": "RandomFlips"}, "the kind 'RandomFlips' is not known"),
        ({"kind": "Sampler"}, "the kind 'Sampler' is not known"),
        ({"kind": "os.system"}, "is not known"),
        ({"kind": ["SimilarWindows"]}, "is not known"),
        ({"kind": "SimilarWindows", "__class__": 1}, "SimilarWindows has no setting '__class__'"),
        ({"kind": "SimilarWindows", "spare": -1}, r"SimilarWindows\.spare is -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            read(stored, kind)


def test_objects_of_the_users_own_are_only_described():
    encoder, optimizer = np.tanh, optax.sgd(1e-3)
    stored = json.loads(json.dumps(written(RPGSSM(encoder=encoder, optimizer=optimizer))))
    assert stored["encoder"]["custom"].startswith("ufunc with ")
    assert stored["optimizer"]["custom"].startswith("GradientTransformation")
    assert identity(RPGSSM(optimizer=optimizer)) == identity(RPGSSM(optimizer=optax.sgd(1e-2)))  # it cannot be told
    assert identity(RPGSSM(optimizer=optimizer)) != identity(RPGSSM())


# --- the identity of a run --------------------------------------------------------------------------------------------


@named([cls for cls in OWNERS if cls is not Stack])
def test_settings_that_change_steps_and_no_others_are_in_the_identity(cls):
    before = identity(cls())
    for name, about in declared(cls).items():
        model = copy.copy(cls())
        object.__setattr__(model, name, other(about))
        effect = about.effect_in(model)
        assert effect in ("steps", "end", "none")
        found = differences(identity(model), before)
        assert len(found) == (effect == "steps"), name
        assert all(line.startswith(f"{name} is ") for line in found)
        if about.neutral is not UNSET:
            object.__setattr__(model, name, about.neutral)
            assert name not in identity(model)


def test_what_has_which_effect():
    about = declared(RPGSSM)
    for name, effect in [("latent_dim", "steps"), ("stopping", "end"), ("verbose", "none"), ("checkpoint_dir", "none")]:
        assert about[name].effect_in(RPGSSM()) == effect
    assert {one.effect for one in declared(Stopping).values()} == {"end"}


@pytest.mark.parametrize(
    ("optimizer", "effect"),
    [
        (Adam(), "steps"),
        (Adam(schedule="constant"), "end"),
        (Adam(schedule="warmup-cosine"), "steps"),
        (Adam(decay_steps=100), "end"),
        (SGD(schedule="exponential"), "steps"),
        (optax.sgd(1e-3), "end"),
    ],
)
def test_the_number_of_steps_matters_while_the_schedule_depends_on_it(optimizer, effect):
    model = RPGSSM(optimizer=optimizer)
    assert declared(RPGSSM)["max_steps"].effect_in(model) == effect
    assert ("max_steps" in identity(model)) == (effect == "steps")


def test_neutral_values_are_as_if_the_setting_did_not_exist():
    assert "augment" not in identity(RPGSSM())
    assert "posterior_gradient" not in identity(RPGSSM())
    assert "posterior_gradient" in identity(RPGSSM(posterior_gradient=False))
    plain = identity(Adam())
    assert not {"prior_rate", "decay_steps", "warmup_steps", "weight_decay"} & set(plain)
    assert identity(Adam(weight_decay=0)) == plain
    assert plain["clip_norm"] == 10.0  # a default, which may change, and so is told
    assert identity(RPGSSM(optimizer=Adam(clip_norm=10))) == identity(RPGSSM())
    assert identity(RPGSSM())["optimizer"] == {"kind": "Adam"} | plain


def test_differences_are_in_words():
    now = identity(RPGSSM(3, sampler=SimilarWindows(spare=2.0), augment=RandomFlips(), learning_rate=1.0))
    assert differences(now, identity(RPGSSM())) == [
        "augment is RandomFlips() and was not set",
        "latent_dim is 3 and was 8",
        "learning_rate is 1.0 and was None",
        "sampler is SimilarWindows(spare=2.0, side=8) and was RandomWindows()",
    ]
    assert differences({}, {"a": 1}) == ["a is not set and was 1"]
    assert differences({"a": (1, 2)}, {"a": (1, 2)}) == []


def test_what_was_left_open_is_told_with_what_it_became():
    told = RPGSSM(encoder="linear").identity(None)
    assert told["learning_rate"] is None
    assert told["learning_rate (resolved)"] == 3e-2
    assert told["marginal"] == "auto"
    assert told["marginal (resolved)"] == {"kind": "GaussianMarginal"}
    assert told["prior (resolved)"]["scale"] == 0.9
    assert RPGSSM(window="auto").identity(6) == RPGSSM(window=6).identity(6)


# --- runs that are resumed --------------------------------------------------------------------------------------------

FIRST: dict[str, Any] = {"encoder": "linear", "latent_dim": 2, "max_steps": 2, "batch_size": 8, "verbose": False}


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(8, 8, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def finished(x, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return RPGSSM(**FIRST, checkpoint_dir=folder).fit(x)


def again(finished, **settings) -> RPGSSM:
    return RPGSSM(**(FIRST | {"checkpoint_dir": finished.checkpoint_dir} | settings))


OF_RPGSSM = declared(RPGSSM)
STEPS = [name for name, about in OF_RPGSSM.items() if about.effect_in(RPGSSM(**FIRST)) == "steps"]
OTHERS: dict[str, Any] = {"encoder": "mlp", "window": 4, "prior": Free()}  # where any other value would not do


@pytest.mark.parametrize("name", STEPS)
def test_another_setting_that_changes_steps_is_refused(finished, x, name):
    about = OF_RPGSSM[name]
    value = OTHERS.get(name, next(v for v in other_values(about) if v != FIRST.get(name)))
    with pytest.raises(ValueError, match=rf"Cannot resume the run in .*\b{name} is .* and was "):
        again(finished, **{name: value}).fit(x, resume=True)


def test_another_setting_that_changes_the_end_alone_is_accepted(finished, x):
    """The run is at its end: nothing is trained."""
    rest = [name for name in OF_RPGSSM if name not in STEPS and name not in ("checkpoint_dir", "verbose")]
    assert rest == ["stopping", "checkpoint_every"]
    settings = {name: other(OF_RPGSSM[name]) for name in rest}
    resumed = again(finished, **settings).fit(x, resume=True)
    assert resumed.n_steps_ == 2
    np.testing.assert_array_equal(resumed.transform(x), finished.transform(x))


@pytest.mark.slow
def test_more_steps_are_accepted_where_the_schedule_allows_it(x, tmp_path):
    settings: dict[str, Any] = {**FIRST, "optimizer": Adam(schedule="constant")}
    RPGSSM(**settings, checkpoint_dir=tmp_path).fit(x)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    resumed = RPGSSM(**(settings | {"max_steps": 4}), checkpoint_dir=moved).fit(x, resume=True)
    whole = RPGSSM(**(settings | {"max_steps": 4})).fit(x)
    np.testing.assert_array_equal(resumed.transform(x), whole.transform(x))


def test_other_data_are_refused(finished, x):
    for data in (x[:, ::-1].copy(), x[:7]):
        with pytest.raises(ValueError, match="Cannot resume the run"):
            again(finished).fit(data, resume=True)


@pytest.mark.slow
def test_runs_of_other_numbers_of_models_are_not_mixed(x, tmp_path):
    """Their folders differ: one of its own, or one for each model."""

    def fit(count, **options):
        return RPGSSM(**FIRST, n_init=count, checkpoint_dir=tmp_path).fit(x, **options)

    fit(2)
    for count in (1, 3):
        with pytest.raises(ValueError, match=f"n_init is {count} and was 2"):
            fit(count, resume=True)
    with pytest.raises(FileExistsError, match="resume=True"):
        fit(1)
    assert len(fit(2, resume=True).init_losses_) == 2
    fit(1, overwrite=True)
    assert fit(1, resume=True).n_steps_ == 2
    with pytest.raises(ValueError, match="n_init is 2 and was 1"):
        fit(2, resume=True)


# --- a setting more ---------------------------------------------------------------------------------------------------


class Toy(RPGSSM):
    """A method with a setting more."""

    dummy: float = setting(0.5, "A number that nothing depends on.", above=0)


@pytest.fixture
def with_toy(monkeypatch):
    monkeypatch.setattr("rpgssm.methods.all_methods", lambda: {cls.__name__: cls for cls in (*METHODS, Toy)})


def test_a_new_setting_is_everywhere(with_toy, x, tmp_path, capsys, unchecked_types):
    parameter = inspect.signature(Toy).parameters["dummy"]
    assert (parameter.default, parameter.kind) == (0.5, inspect.Parameter.KEYWORD_ONLY)
    assert "dummy : A number that nothing depends on. Default: 0.5." in (Toy.__doc__ or "")
    assert Toy().get_params()["dummy"] == 0.5
    for wrong in (0, "a", float("nan")):
        with pytest.raises(ValueError, match=f"dummy is {wrong!r}: it must be a positive number"):
            Toy(dummy=wrong).fit(x)
    assert settings_group(Toy)().dummy == 0.5
    assert fit_command(["fit", "--model", "toy"]).__dataclass_fields__["model"].default == "toy"
    with pytest.raises(SystemExit):
        main(["fit", "--model", "toy", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--dummy FLOAT" in shown
    assert "A number that nothing depends on. (default: 0.5)" in shown
    assert Toy(dummy=0.25).identity(None) == Toy().identity(None) | {"dummy": 0.25}
    assert "dummy" not in declared(RPGSSM)


def test_a_new_setting_is_saved_and_resumed(with_toy, x, tmp_path, capsys):
    np.save(tmp_path / "x.npy", x)
    command = ["fit", str(tmp_path / "x.npy"), "-o", str(tmp_path / "run"), "--model", "toy", "--quiet"]
    command += ["--latent-dim", "2", "--encoder", "linear", "--max-steps", "2", "--batch-size", "8"]
    main([*command, "--dummy", "0.25"])
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["dummy"] == 0.25
    assert Toy.load(tmp_path / "run").dummy == 0.25
    with pytest.raises(SystemExit):
        main([*command, "--dummy", "0.75", "--resume"])
    assert "dummy is 0.75 and was 0.25" in capsys.readouterr().err


# --- settings that have moved -----------------------------------------------------------------------------------------


def test_a_second_training_says_where_it_went():
    with pytest.raises(TypeError, match=r"RPGSSM has no setting 'widen' since 0.2: .*Stack\(\[.*CHANGELOG"):
        RPGSSM(widen=256)  # pyright: ignore[reportCallIssue]
    assert len(RPGSSM().get_params()) == len(declared(RPGSSM))


@pytest.mark.parametrize("name", MOVED)
def test_settings_that_have_moved_say_where(name):
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"{name}=" in changes or name == "widen_components"
    for cls in METHODS:
        assert name not in declared(cls)
        with pytest.raises(TypeError, match=f"{cls.__name__} has no setting '{name}' since 0.2: "):
            cls(**{name: 1})
    for part in re.findall(r"\b([A-Z]\w+)\(", MOVED[name]):  # what is named there is there
        assert hasattr(rpgssm, part)


def test_other_names_are_as_wrong_as_ever():
    for cls in (RPGSSM, KVAE, RKN):
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            cls(colour=1)

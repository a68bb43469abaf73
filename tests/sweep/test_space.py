import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golfray.config.errors import ConfigError
from golfray.config.resolve import Layer
from golfray.sweep.knobs import Choice, FloatRange, IntRange
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.node_rules import NodeRules
from golfray.sweep.points import planned_points
from golfray.sweep.space import Space, load_space
from golfray.sweep.space_file import Limits, Nodes, SpaceFile, field_names
from golfray.sweep.trial_record import FIRST_POINT, PRESET, PRESET_8BIT, REPLICATE

MUON = Path(__file__).parents[2] / "search_spaces" / "muon.yaml"

HEAD = """\
name: a
preset: parameter-golf
scale: laptop
budget: {trials: 4}
"""


def setting(config: object, path: str) -> object:
    for part in path.split("."):
        config = getattr(config, part)
    return config


def sampled(space: Space, data: st.DataObject) -> dict:
    params = {}
    for name, parameter in space.parameters.items():
        match parameter:
            case FloatRange(low, high):
                params[name] = data.draw(st.floats(low, high))
            case IntRange(low, high, _, step):
                params[name] = data.draw(st.sampled_from(range(low, high + 1, step)))
            case Choice(choices):
                params[name] = data.draw(st.sampled_from(choices))
    return params


class TestMuonSpace:
    @pytest.fixture(params=[True, False], ids=["full", "laptop"])
    def space(self, request: pytest.FixtureRequest) -> Space:
        return load_space(MUON, has_gpu=request.param)

    def test_auto_is_laptop_without_a_gpu_and_says_so(self) -> None:
        space = load_space(MUON, has_gpu=False)
        assert space.base.config.scale == "laptop"
        assert "no GPU" in space.base.origins["scale"]
        assert load_space(MUON, has_gpu=True).base.config.scale == "full"

    def test_full_ranges(self) -> None:
        space = load_space(MUON, has_gpu=True)
        ranges = {knob.path: (knob.domain.low, knob.domain.high) for knob in space.knobs}
        assert ranges["optimizer.matrix_lr"] == (0.008, 0.08)
        assert ranges["optimizer.scalar_lr"] == (0.005, 0.08)
        assert ranges["optimizer.tied_embed_lr"] == (0.01, 0.12)
        assert ranges["muon.momentum_end"] == (0.9, 0.995)
        assert ranges["muon.momentum_start"] == (0.8, 0.95)
        assert ranges["muon.momentum_warmup_share"] == (0.02, 0.5)
        assert ranges["muon.weight_decay"] == (0.005, 0.15)
        assert [ranges[f"export.bits_{part}"] for part in ("attention", "mlp", "embedding")] == [(5, 8), (4, 8), (6, 8)]

    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_every_point_is_a_valid_configuration(self, space: Space, data: st.DataObject) -> None:
        resolved = space.at(sampled(space, data))
        muon = resolved.config.muon
        assert muon.momentum_start <= muon.momentum_end
        assert resolved.config.export.scale_floor == 0.0
        decay = next(knob.domain for knob in space.knobs if knob.path == "muon.weight_decay")
        assert muon.weight_decay == 0.0 or decay.low <= muon.weight_decay <= decay.high
        assert resolved.origins["export.scale_floor"] == "bits vary"
        assert resolved.origins["optimizer.matrix_lr"] == "sampler"
        for knob in space.knobs:
            assert setting(resolved.config, knob.path) is not None

    def test_points_of_the_laptop(self) -> None:
        points = planned_points(load_space(MUON, has_gpu=False))
        assert [point.role for point in points] == [PRESET, PRESET_8BIT, REPLICATE, REPLICATE]
        preset, eight, *replicates = points
        assert preset.told
        assert eight.told
        assert not any(point.told for point in replicates)
        assert {eight.params[f"export.bits_{part}"] for part in ("attention", "mlp", "embedding")} == {8}
        changed = {name for name in preset.params if preset.params[name] != eight.params[name]}
        assert changed <= {"export.bits_attention", "export.bits_mlp", "export.bits_embedding"}
        assert len({point.resolved.config.runtime.seed for point in points if point is not eight}) == 3
        assert all(point.replicate_of == 0 for point in replicates)

    def test_trial_0_at_full_scale_is_the_preset_itself_and_trial_1_has_no_scale_floor(self) -> None:
        preset, eight, *_ = planned_points(load_space(MUON, has_gpu=True))
        assert preset.resolved.config.export.scale_floor == pytest.approx(1 / 127)
        assert preset.resolved.config.schedule.warmdown_share is None
        assert not preset.told
        assert "export.scale_floor" in (preset.told_reason or "")
        assert eight.resolved.config.export.scale_floor == 0.0
        assert eight.told
        assert eight.params == preset.params


def test_describe_says_scale_ranges_and_what_follows() -> None:
    space = load_space(MUON, has_gpu=False)
    assert space.describe() == ["parameter-golf at scale laptop (auto: no GPU was found), 2 workers, 11 knobs"]
    lines = space.describe_knobs()
    assert "export.bits_mlp: 4..8, trial 0 at 6" in lines
    assert "muon.weight_decay: 0 or 0.01..0.5 (log), trial 0 at 0.0" in lines
    assert lines[-1] == "export.scale_floor = 0 wherever the sampler searches: bits vary"


def test_8_bit_point_is_left_out_where_it_is_trial_0_again(space_at) -> None:
    text = (
        HEAD + "fixed: {export: {bits_mlp: 8, bits_attention: 8}}\nknobs: {export.bits_embedding: {low: 6, high: 8}}\n"
    )
    assert [point.role for point in planned_points(space_at(text))] == [PRESET, REPLICATE, REPLICATE]


def test_preset_outside_a_range_runs_and_is_not_told(space_at) -> None:
    space = space_at(HEAD + "replicates: 1\nknobs: {optimizer.matrix_lr: {low: 0.05, high: 0.1}}\n")
    (preset,) = planned_points(space)
    assert not preset.told
    assert preset.told_reason == "optimizer.matrix_lr=0.04 is outside 0.05..0.1"
    assert preset.resolved.config.optimizer.matrix_lr == 0.04


def test_first_points_follow_trial_0_and_the_budget_cuts_them_but_no_replicate(space_at) -> None:
    text = HEAD + "knobs: {optimizer.matrix_lr: {low: 0.01, high: 0.1}, muon.momentum_end: {low: 0.8, high: 0.99}}\n"
    points = [f"  - {{optimizer.matrix_lr: {rate}}}\n" for rate in (0.01, 0.02, 0.1, 0.03)]
    planned = planned_points(space_at(text + "first_points:\n" + "".join(points)))
    assert [point.role for point in planned] == [PRESET] + [FIRST_POINT] * 3 + [REPLICATE] * 2
    assert planned[1].params == {"optimizer.matrix_lr": 0.01, "muon.momentum_end": 0.95}
    assert [point.told for point in planned[1:4]] == [True, True, True]
    assert planned[3].resolved.config.optimizer.matrix_lr == 0.1


def test_fixed_and_set_hold_for_every_trial(space_at) -> None:
    text = HEAD + "workers: 1\nfixed: {model.num_layers: 2}\nknobs: {optimizer.matrix_lr: {low: 0.01, high: 0.1}}\n"
    space = space_at(text, layers=[Layer.from_sets(["stop.seconds=3"])])
    for resolved in (space.base, space.at({"optimizer.matrix_lr": 0.02})):
        assert resolved.config.model.num_layers == 2
        assert resolved.config.stop.seconds == 3
        assert resolved.config.workers == 1
        assert resolved.origins["stop.seconds"] == "--set"
        assert resolved.config.export.scale_floor == 0.0


def test_a_scale_changes_only_what_it_names(space_at) -> None:
    text = (
        HEAD + "knobs: {optimizer.matrix_lr: {low: 0.01, high: 0.1, log: true}, model.num_layers: {low: 2, high: 4}}\n"
    )
    space = space_at(
        text + "scales: {laptop: {optimizer.matrix_lr: {high: 0.3}, model.num_layers: {choices: [2, 4]}}}\n"
    )
    assert space.parameters == {
        "optimizer.matrix_lr": FloatRange(0.01, 0.3, log=True),
        "model.num_layers": Choice((2, 4)),
    }


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("nam: b\n", 5, "nam: is unknown here; did you mean name?"),
        ("knobs: {}\n", 5, "name at least one setting"),
        ("knobs: {optimizer.matrix_rl: {low: 0.1, high: 1}}\n", 5, "did you mean optimizer.matrix_lr?"),
        (
            "knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.002}}\n",
            5,
            "optimizer.matrix_lr.high: must be > low (0.02), got 0.002",
        ),
        ("knobs: {optimizer.matrix_lr: {low: 0.02}}\n", 5, "needs high"),
        ("knobs: {optimizer.matrix_lr: {low: a, high: 1}}\n", 5, 'must be a number >= 0, got "a"'),
        ("knobs: {optimizer.matrix_lr: {low: 0, high: 1, log: true}}\n", 5, "must be above 0 where log is true"),
        ("knobs: {optimizer.matrix_lr: {low: 0, high: 1, logg: true}}\n", 5, "did you mean log?"),
        ("knobs: {optimizer.matrix_lr: {low: 0.1, high: 1, step: 0.4}}\n", 5, "must divide high - low"),
        ("knobs: {optimizer.matrix_lr: {low: 0.1, high: 1, log: true, step: 0.3}}\n", 5, "cannot go with log"),
        ("knobs: {export.bits_mlp: {low: 1, high: 8}}\n", 5, "must be an integer >= 2 and <= 32, got 1"),
        ("knobs: {export.bits_mlp: {low: 4.5, high: 8}}\n", 5, "must be an integer"),
        ("knobs: {muon.ns_dtype: {low: 1, high: 2}}\n", 5, "list the values to try as choices"),
        ("knobs: {muon.ns_dtype: {choices: [bfloat16, int8]}}\n", 5, "must be one of bfloat16, float32"),
        ("knobs: {muon.ns_dtype: {choices: [bfloat16]}}\n", 5, "at least two values"),
        ("knobs: {muon.ns_steps: {choices: [3, 5], low: 1}}\n", 5, "cannot go with choices"),
        ("knobs: {muon.ns_steps: {low: 1, high: 5, complement: true}}\n", 5, "needs a range of numbers up to 1"),
        ("knobs: {muon.momentum_end: {low: 0, high: 0.9, or_zero: true}}\n", 5, "0 must lie outside"),
        ("knobs: {muon.momentum_start: {low: 0, high: 0.9, at_most: muon.momentum_end}}\n", 5, "another knob"),
        ("knobs: {stop.seconds: {low: 1, high: 9}}\n", 5, "cannot be compared"),
        ("knobs: {scale: {choices: [full, laptop]}}\n", 5, "choose the scale where the run is started"),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nfixed: {muon.ns_steps: 3}\n", 6, "is a knob of"),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nfixed: {muon.ns_stepps: 3}\n", 6, "did you mean muon.ns_steps"),
        (
            "knobs: {export.bits_mlp: {low: 4, high: 8}}\nfixed: {export.scale_floor: 0.01}\n",
            6,
            "must be 0 where bits vary",
        ),
        (
            "knobs: {muon.ns_steps: {low: 1, high: 5}}\nfirst_points:\n- {muon.ns_step: 3}\n",
            7,
            "not a knob of this space",
        ),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nfirst_points:\n- {muon.ns_steps: 0}\n", 7, "must be an integer"),
        (
            "knobs: {model.num_heads: {choices: [2, 4]}}\nfirst_points:\n- {model.num_heads: 5}\n",
            7,
            "must be one of 2, 4, got 5",
        ),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nscales: {lap: {}}\n", 6, "did you mean laptop?"),
        (
            "knobs: {muon.ns_steps: {low: 1, high: 5}}\nscales:\n  laptop:\n    muon.ns_steps: {low: 7}\n",
            8,
            "scales.laptop.muon.ns_steps.low: must be < high (5), got 7",
        ),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nworkers: 3\n", 6, "multiple of workers"),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nsampler: tpee\n", 6, 'must be one of tpe, gp, random, got "tpee"'),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nreplicates: 0\n", 6, "must be >= 1, got 0"),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nreplicates: 1001\n", 6, "must be <= 1000, got 1001"),
        ("knobs: {optimizer.matrix_lr: {low: 0.1, high: 1, step: .nan}}\n", 5, "must be a number above 0, got NaN"),
        ("knobs: {optimizer.matrix_lr: {low: 0.1, high: 1, step: 1.0e-300}}\n", 5, "is too small to tell"),
        ("knobs: {muon.ns_steps: 3}\n", 5, "must be a mapping of names to values, got 3"),
        ("knobs: [muon.ns_steps]\n", 5, 'must be a mapping of names to values, got ["muon.ns_steps"]'),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nfirst_points: 3\n", 6, "must be a list, got 3"),
        ("knobs: {muon.ns_steps: {low: 1, high: 5}}\nseed: 1.5\n", 6, "must be an integer, got 1.5"),
        ("knobs: {muon.ns_steps: {low: 1, high: 5, log: 1}}\n", 5, "must be true or false, got 1"),
    ],
)
def test_mistakes_are_located(space_at, text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        space_at(HEAD + text)
    assert message in str(caught.value)
    assert caught.value.file is not None
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("preset: parameter-golf", "preset: parameter-gulf", 2, "did you mean parameter-golf"),
        ("name: a", "name: a/b", 1, "must be letters"),
        ("{trials: 4}", "{}", 4, "give one or more of trials, minutes, gpu_hours, usd"),
        ("{trials: 4}", "{trials: 0}", 4, "must be >= 1, got 0"),
        ("{trials: 4}", "{trial: 4}", 4, "did you mean trials?"),
        ("{trials: 4}", "4", 4, "got 4"),
    ],
)
def test_mistakes_of_the_head_are_located(space_at, old: str, new: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        space_at(HEAD.replace(old, new) + "knobs: {muon.ns_steps: {low: 1, high: 5}}\n")
    assert message in str(caught.value)
    assert caught.value.line == line


def test_a_null_setting_needs_at_preset(space_at) -> None:
    text = HEAD.replace("laptop", "full") + "knobs: {schedule.warmdown_share: {low: 0.1, high: 1}}\n"
    with pytest.raises(ConfigError, match="say with at_preset") as caught:
        space_at(text, has_gpu=True)
    assert caught.value.line == 5


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_space(tmp_path / "none.yaml", has_gpu=False)


@pytest.mark.parametrize("has_gpu", [True, False])
def test_the_searched_space_is_muon_without_its_bits(has_gpu) -> None:
    muon, searched = (load_space(MUON.with_name(f"{name}.yaml"), has_gpu=has_gpu) for name in ("muon", "muon_searched"))
    assert [knob for knob in muon.knobs if not knob.path.startswith("export.")] == list(searched.knobs)
    assert searched.base.config.export.search == 200
    assert (searched.implied, searched.bits_knobs) == ({}, [])
    assert [point.role for point in planned_points(searched)] == [PRESET, REPLICATE, REPLICATE]


def test_a_search_and_knobs_of_the_export_are_not_for_one_study(space_at) -> None:
    searched = [Layer.from_sets(["export.format=flat", "export.search=200"])]
    knob = "knobs:\n  muon.ns_steps: {low: 3, high: 7}\n"
    assert space_at(HEAD + knob, layers=searched).at({"muon.ns_steps": 4}).config.export.search == 200
    with pytest.raises(ConfigError, match=r"space\.yaml:7:3 knobs\.export\.bits_mlp: cannot be a knob where export\.s"):
        space_at(HEAD + knob + "  export.bits_mlp: {low: 4, high: 8}\n", layers=searched)
    with pytest.raises(ConfigError, match=r"space\.yaml:7:9 fixed\.export\.codec: is what export\.search chooses"):
        space_at(HEAD + knob + "fixed: {export.codec: lzma}\n", layers=searched)
    with pytest.raises(ConfigError, match=r"knobs\.export\.search: decides whether trials have the export of their"):
        space_at(HEAD + knob + "  export.search: {low: 100, high: 200}\n")


def test_set_on_a_knob_is_refused(space_at) -> None:
    text = HEAD + "knobs: {muon.ns_steps: {low: 1, high: 5}}\n"
    with pytest.raises(ConfigError, match=r"--set muon\.ns_steps: is a knob of"):
        space_at(text, layers=[Layer.from_sets(["muon.ns_steps=3"])])


def test_limits_are_the_defaults_where_nothing_is_said(space_at) -> None:
    text = HEAD + "knobs: {muon.ns_steps: {low: 1, high: 5}}\n"
    assert space_at(text).limits == PhaseLimits()
    phases = "{start: 1, data: 2, compile: 3, train: 4, progress: 5.5, validate: 6, calibrate: 7, search: 8, "
    phases += "export: 9, score: 10, sliding: 11}"
    assert space_at(text + f"limits: {phases}\n").limits == PhaseLimits(1, 2, 3, 4, 5.5, 6, 7, 8, 9, 10, 11)
    assert space_at(text + "limits: {train: null, export: 7}\n").limits == PhaseLimits(export=7)
    with pytest.raises(ConfigError, match=r"limits\.start: must be a number, got null"):
        space_at(text + "limits: {start: null}\n")


def test_the_limits_of_a_file_are_those_of_the_executor() -> None:
    assert field_names(Limits) == sorted(field.name for field in dataclasses.fields(PhaseLimits))
    assert SpaceFile.model_fields["limits"].get_default(call_default_factory=True) == Limits()


def test_what_is_asked_of_nodes(space_at) -> None:
    text = HEAD + "knobs: {muon.ns_steps: {low: 1, high: 5}}\n"
    assert space_at(text).nodes == NodeRules()
    rules = space_at(text + "nodes: {mirror: /nvme, mirror_gb: 16.5, refuse_slower: 1.2}\n").nodes
    assert (rules, rules.mirror_bytes) == (NodeRules("/nvme", 16.5, 1.2), 16_500_000_000)
    assert field_names(Nodes) == sorted(field.name for field in dataclasses.fields(NodeRules))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("{mirror: nvme, mirror_gb: 1}", r":6:9 nodes\.mirror: must be a folder from the root, got .nvme."),
        (
            "{mirror: /nvme}",
            r":6:9 nodes\.mirror: means something with nodes\.mirror_gb only; give both, or remove it",
        ),
        ("{mirror_gb: 3}", r":6:9 nodes\.mirror_gb: means something with nodes\.mirror only"),
        ("{mirror: /nvme, mirror_gb: 0}", r"nodes\.mirror_gb: must be > 0, got 0"),
        ("{refuse_slower: 1}", r"nodes\.refuse_slower: must be > 1, got 1"),
        ("{refuse_slow: 1.2}", r"nodes\.refuse_slow: is unknown here; did you mean refuse_slower\?"),
    ],
)
def test_what_cannot_be_asked_of_nodes(space_at, nodes: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        space_at(HEAD + f"knobs: {{muon.ns_steps: {{low: 1, high: 5}}}}\nnodes: {nodes}\n")


def test_the_dictionary_of_a_space_is_what_json_reads_back_and_says_all_that_decides(space_at) -> None:
    text = HEAD + "knobs: {muon.ns_steps: {choices: [3, 5]}, optimizer.matrix_lr: {low: 0.01, high: 0.1}}\n"
    plain = space_at(text).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    more = text + "fixed: {model.num_layers: 2}\n"
    changed = {
        "name": text.replace("name: a", "name: b"),
        "budget": text.replace("trials: 4", "trials: 5"),
        "seed": text + "seed: 9\n",
        "sampler": text + "sampler: random\n",
        "replicates": text + "replicates: 2\n",
        "fixed": more,
        "scale": text.replace("scale: laptop", "scale: full"),
        "first_points": text + "first_points: [{muon.ns_steps: 3}]\n",
        "limits": text + "limits: {start: 60}\n",
        "nodes": text + "nodes: {refuse_slower: 1.5}\n",
        "knobs": text.replace("[3, 5]", "[3, 5, 6]"),
    }
    for key, other in changed.items():
        differing = {name for name, value in space_at(other).to_dict().items() if value != plain[name]}
        assert key in differing, key
        assert differing <= {key, "knobs"} if key == "scale" else differing == {key}, key
    with_conditions = text.replace("high: 0.1", "high: 0.1, when: {muon.ns_steps: 3}")
    assert space_at(with_conditions).to_dict()["knobs"]["optimizer.matrix_lr"]["when"] == {"muon.ns_steps": [3]}


def test_a_gpu_is_looked_for_only_where_it_decides_and_after_everything_else(space_at) -> None:
    asked = []

    def has_gpu() -> bool:
        asked.append(True)
        return True

    knobs = "knobs: {muon.ns_steps: {low: 1, high: 5}}\n"
    assert space_at(HEAD + knobs, has_gpu=has_gpu).base.config.scale == "laptop"
    auto = HEAD.replace("scale: laptop", "scale: auto")
    for wrong in ("knobs: {muon.ns_stepz: {low: 1, high: 5}}\n", knobs + "fixed: {model: 3}\n", knobs + "seed: x\n"):
        with pytest.raises(ConfigError):
            space_at(auto + wrong, has_gpu=has_gpu)
    assert asked == []
    assert space_at(auto + knobs, has_gpu=has_gpu).base.config.scale == "full"
    assert asked == [True]


def test_auto_can_be_told_what_to_mean_and_nothing_else_can(space_at) -> None:
    knobs = "knobs: {muon.ns_steps: {low: 1, high: 5}}\n"
    auto = HEAD.replace("scale: laptop", "scale: auto") + knobs
    assert space_at(auto, scale="full").base.config.scale == "full"
    assert space_at(auto, has_gpu=True, scale="laptop").base.config.scale == "laptop"
    assert space_at(HEAD + knobs, scale="laptop").base.config.scale == "laptop"
    with pytest.raises(ConfigError, match=r"space\.yaml:3:1 scale: is laptop; only a file that says auto"):
        space_at(HEAD + knobs, scale="full")
    with pytest.raises(ConfigError, match=r'^scale: must be one of auto, full, laptop, got "tiny"$'):
        space_at(auto, scale="tiny")


def test_a_range_only_the_other_scale_would_use_may_be_missing_but_not_wrong(space_at) -> None:
    only_laptop = (
        "knobs: {optimizer.matrix_lr: {log: true}}\nscales: {laptop: {optimizer.matrix_lr: {low: 1, high: 2}}}\n"
    )
    assert space_at(HEAD + only_laptop).parameters == {"optimizer.matrix_lr": FloatRange(1, 2, log=True)}
    with pytest.raises(ConfigError, match="needs low"):
        space_at(HEAD.replace("scale: laptop", "scale: auto") + only_laptop)
    with pytest.raises(ConfigError, match=r"knobs\.optimizer\.matrix_lr\.high: must be > low \(2\.0\), got 1\.0"):
        space_at(HEAD + only_laptop.replace("{log: true}", "{low: 2, high: 1}"))


def test_the_last_seed_of_the_replicates_is_a_seed(space_at) -> None:
    last = 2**63 - 3
    text = HEAD + f"fixed: {{runtime.seed: {last}}}\nknobs: {{muon.ns_steps: {{low: 1, high: 5}}}}\n"
    assert planned_points(space_at(text))[-1].resolved.config.runtime.seed == 2**63 - 1
    with pytest.raises(ConfigError, match=rf"fixed\.runtime\.seed: must be <= {last} so that trial 0 has 3 seeds"):
        space_at(text.replace(str(last), str(last + 1)))
    assert len(planned_points(space_at(text.replace(str(last), str(2**63 - 1)) + "replicates: 1\n"))) == 1

import os
import subprocess
import sys
import tempfile

import pytest

from golfray.core.settings import settings_to_json
from golfray.sweep.compile_cache import cache_folder, compiled_before


def program(*shapes: tuple[int, ...]) -> str:
    lines = [f"        assert_size_stride(primals_{n}, {shape}, (1,), 'input')" for n, shape in enumerate(shapes, 1)]
    return "\n".join(["def call(self, args):", *lines, "        return ()", ""])


# One layer of 32 channels, two heads of which one is shared, on micro-batches of 4 sequences of 32 tokens.
SHAPES = [
    (4, 32), (4, 32),
    (320, 32),
    (32,), (32,), (2, 32), (2,), (32, 32), (16, 32), (16, 32), (32, 32), (64, 32), (32, 64),
]  # fmt: skip


@pytest.fixture
def one_layer(tiny_settings):
    model = {"num_layers": 1, "model_dim": 32, "num_heads": 2, "num_kv_heads": 1, "mlp_mult": 2.0}
    return tiny_settings(model=model, batch={"tokens": 512, "slices": 4, "seq_len": 32})


def keep(folder, text: str) -> None:
    (folder / "ab").mkdir(parents=True)
    (folder / "ab" / "cab123.py").write_text(text)


def test_a_program_for_the_same_shapes_is_found_in_any_order(one_layer, tmp_path) -> None:
    keep(tmp_path, program(*reversed(SHAPES)))
    assert compiled_before(one_layer, tmp_path)


@pytest.mark.parametrize("shapes", [SHAPES[1:], [*SHAPES, (32,)], [(8, 32), *SHAPES[1:]], []])
def test_one_for_other_shapes_is_not(one_layer, tmp_path, shapes) -> None:
    keep(tmp_path, program(*shapes))
    assert not compiled_before(one_layer, tmp_path)


def test_nothing_is_found_where_there_is_no_cache(one_layer, tmp_path) -> None:
    assert not compiled_before(one_layer, tmp_path / "none")


@pytest.mark.parametrize("user", ["ada", 'a/d\\a:*?"<>|', None])
def test_the_folder_is_torchs_own(tmp_path, monkeypatch, user) -> None:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    if user is None:
        # As in a container that is run as a user whom its image does not know.
        monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    else:
        monkeypatch.setenv("LOGNAME", user)
    for chosen in (None, tmp_path / "chosen"):
        if chosen is None:
            monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        else:
            monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(chosen))
        found = cache_folder()
        assert not found.exists()
        assert str(found) == cache_dir()


@pytest.mark.slow
def test_what_torch_really_compiled_is_found(one_layer, tmp_path) -> None:
    (tmp_path / "settings.json").write_text(settings_to_json(one_layer))
    code = (
        "import json, torch\n"
        "from golfray.core.model import build_model\n"
        "from golfray.core.settings import settings_from_dict\n"
        f"settings = settings_from_dict(json.load(open({str(tmp_path / 'settings.json')!r})))\n"
        "model = build_model(settings.model, torch.float32, torch.device('cpu'))\n"
        "tokens = torch.randint(320, (4, 33))\n"
        "loss_of = torch.compile(model, dynamic=False, fullgraph=True)\n"
        "loss_of(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()).backward()\n"
    )
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert compiled_before(one_layer, tmp_path / "cache")

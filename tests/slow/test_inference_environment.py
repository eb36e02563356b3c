"""What the two environments of the inference side can and cannot do by themselves."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from servers import REPOSITORY, free_port

FLOWS = ("flows.redeploy", "flows.rollback", "flows.ensure_service")
BANNED = ("torch", "ultralytics", "dvc", "great_expectations", "pandas")


def interpreter(variable: str, folder: str) -> Path:
    """The interpreter of an environment of `make setup`."""
    path = Path(os.environ.get(variable, REPOSITORY / folder / "bin" / "python"))
    assert path.exists(), f"no interpreter at {path}: run `make setup`, or set {variable}"
    return path


@pytest.fixture
def inference_python() -> Path:
    return interpreter("PASSLINE_INFERENCE_PYTHON", ".venv-inference")


@pytest.fixture
def passline() -> Path:
    """The command of the serving environment."""
    return interpreter("PASSLINE_SERVING_PYTHON", ".venv-serving").with_name("passline")


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run outside the project, with nothing of this process's environment but the path."""
    given = {"PATH": os.environ["PATH"], "HOME": str(folder), **environment}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=180)


@pytest.mark.parametrize("package", BANNED)
def test_the_inference_worker_has_no_training_package(package: str, inference_python: Path, tmp_path: Path) -> None:
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is not None)"
    done = run([str(inference_python), "-c", program], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_inference_worker_loads_its_flows_as_prefect_does(inference_python: Path, tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from prefect.flows import load_flow_from_entrypoint\n"
        "names = [load_flow_from_entrypoint(f'{m}.{m.split(\".\")[1]}', use_placeholder_flow=False).name"
        f" for m in {FLOWS}]\n"
        "print(json.dumps([names, sys.modules['flows.redeploy'].__file__]))\n"
    )
    file = tmp_path / "load.py"
    file.write_text(program)
    done = run([str(inference_python), str(file)], tmp_path, PREFECT_HOME=str(tmp_path / "prefect"))
    assert done.returncode == 0, done.stderr
    names, place = json.loads(done.stdout.splitlines()[-1])
    assert names == [module.split(".")[1] for module in FLOWS]
    assert not Path(place).is_relative_to(REPOSITORY / "flows"), "the working tree, not the built package"


def host(folder: Path) -> dict[str, str]:
    """An inference host where nothing was ever started."""
    return {
        "PASSLINE_HOME": str(folder / "home"),
        "PASSLINE_STORE": str(folder / "store"),
        "PASSLINE_SERVICE_PORT": str(free_port()),
    }


def test_status_of_a_host_where_nothing_runs(passline: Path, tmp_path: Path) -> None:
    done = run([str(passline), "status", "--json"], tmp_path, **host(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["live"], found["ready"], found["release"], found["processes"]) == (False, False, None, {})
    plain = run([str(passline), "status"], tmp_path, **host(tmp_path))
    assert plain.returncode == 0, plain.stderr
    assert "down" in plain.stdout


def test_release_of_a_host_that_has_none(passline: Path, tmp_path: Path) -> None:
    done = run([str(passline), "release", "show", "--json"], tmp_path, **host(tmp_path))
    assert done.returncode == 0, done.stderr
    desired = json.loads(done.stdout)["desired"]
    assert (desired["active"], desired["candidate"], desired["previous"]) == (None, None, None)
    plain = run([str(passline), "release", "show"], tmp_path, **host(tmp_path))
    assert plain.returncode == 0, plain.stderr
    assert "active    none" in plain.stdout


@pytest.mark.parametrize(
    "command", [("inspect",), ("bundle", "verify"), ("release", "activate"), ("release", "import")]
)
def test_help_of_the_inference_side(command: tuple[str, ...], passline: Path, tmp_path: Path) -> None:
    done = run([str(passline), *command, "--help"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_inspect_says_that_nobody_answers(passline: Path, tmp_path: Path) -> None:
    done = run([str(passline), "inspect", "missing.png"], tmp_path, **host(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "Is the service up?" in done.stderr


def test_a_training_command_says_which_environment_it_needs(passline: Path, tmp_path: Path) -> None:
    done = run([str(passline), "deploy"], tmp_path, **host(tmp_path), PASSLINE_PROJECT=str(REPOSITORY))
    assert done.returncode == 2
    assert "make setup" in done.stderr
    assert "Traceback" not in done.stderr

"""The shape of the system: layers, environments, what importing does, and that the documents name what exists."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
REQUIREMENTS = REPOSITORY / "requirements"
LOCKS = ("dev", "training", "inference", "serving")
PYPROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
PACKAGES = ("data_contracts", "serving", "tasks", "flows", "deployments", "benchmarks")
NOT_IN_SERVING = {"torch", "ultralytics", "prefect", "mlflow", "dvc", "great_expectations", "pandas"}
NOT_IN_INFERENCE_FLOWS = {"torch", "ultralytics", "dvc", "great_expectations"}
PROBE_TIMEOUT_S = 240

# --- layers -------------------------------------------------------------------------------------------------------


def contract(kind: str, **fields: object) -> dict[str, Any]:
    """The import contract of pyproject.toml of that type with those fields."""
    found = [
        one
        for one in PYPROJECT["tool"]["importlinter"]["contracts"]
        if one["type"] == kind and all(one.get(name) == value for name, value in fields.items())
    ]
    assert len(found) == 1, f"pyproject.toml: one import contract of type {kind} with {fields}, found {len(found)}"
    return dict(found[0])


def test_the_contracts_say_what_the_architecture_says() -> None:
    layers = contract("layers")["layers"]
    assert layers == ["benchmarks", "deployments", "flows", "tasks", "serving", "data_contracts"]
    serving = contract("forbidden", source_modules=["serving", "data_contracts"])
    assert set(serving["forbidden_modules"]) >= NOT_IN_SERVING
    assert contract("forbidden", source_modules=["serving.detector"])["forbidden_modules"] == ["bentoml"]
    assert set(PYPROJECT["tool"]["importlinter"]["root_packages"]) == set(PACKAGES)


def test_imports_keep_the_contracts() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = len(PYPROJECT["tool"]["importlinter"]["contracts"])
    assert f"Contracts: {kept} kept, 0 broken" in done.stdout


def test_the_wheel_has_every_package() -> None:
    top_level = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")}
    assert set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == top_level == set(PACKAGES)


# --- what importing does ------------------------------------------------------------------------------------------


HEAVY = {"tasks.training.trainer"}
"""Only for a process that trains: it builds on classes of Ultralytics. The others must not load it."""


def our_modules() -> list[str]:
    """Every module of our packages but the heavy ones."""
    return [
        module
        for package in PACKAGES
        for module in [
            package,
            *(found.name for found in pkgutil.walk_packages([str(REPOSITORY / package)], f"{package}.")),
        ]
        if module not in HEAVY
    ]


DETECTOR = ("serving.detector",)
INFERENCE_FLOWS = ("flows.redeploy", "flows.rollback", "flows.ensure_service")
SERVICE = ("serving.service", "serving.worker")


@dataclass(frozen=True)
class Imported:
    """What importing groups of modules one after the other did; see import_probe.py."""

    loaded: list[list[str]]
    environment: list[str]
    written: list[str]


def imported(root: Path, folder: Path, *groups: tuple[str, ...]) -> Imported:
    """What a fresh interpreter in empty folders saw when it imported the groups, each after those before it."""
    home, place = folder / "home", folder / "place"
    home.mkdir(parents=True)
    place.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PREFECT_HOME": str(folder / "prefect")}
    command = [sys.executable, str(REPOSITORY / "tests" / "import_probe.py"), str(root)]
    command += [",".join(group) for group in groups]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return Imported(**json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """The lighter groups first: what a later one may not load, an earlier one must not have loaded either."""
    folder = tmp_path_factory.mktemp("imports")
    return imported(REPOSITORY, folder, DETECTOR, SERVICE, INFERENCE_FLOWS, tuple(our_modules()))


@pytest.mark.parametrize(
    ("group", "there", "banned"),
    [
        pytest.param(0, "cv2", {"bentoml", *NOT_IN_SERVING}, id="the detector lacks bentoml"),
        pytest.param(1, "bentoml", NOT_IN_SERVING, id="the service lacks the training side"),
        pytest.param(2, "prefect", NOT_IN_INFERENCE_FLOWS, id="the inference flows lack the training side"),
        pytest.param(3, "scipy", {"torch", "ultralytics", "great_expectations"}, id="heavy ones come when needed"),
    ],
)
def test_what_importing_loads(group: int, there: str, banned: set[str], probed: Imported) -> None:
    loaded = set(probed.loaded[group])
    assert there in loaded
    assert not loaded & banned


def test_nothing_happens_on_import(probed: Imported) -> None:
    # ONNX Runtime's usage reports can only be switched off before it is imported.
    assert probed.environment == ["ORT_DISABLE_TELEMETRY in ort.py"]
    assert probed.written == []


def test_the_probe_sees_what_it_must_not_miss(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "guilty.py").write_text(
        "import os, pathlib\n"
        "os.environ.get('READ_ME')\n"
        "os.environ.update(SET_ME='1')\n"
        "pathlib.Path('made').mkdir()\n"
        "pathlib.Path('file').write_text('x')\n"
    )
    seen = imported(tmp_path / "root", tmp_path / "run", ("guilty",))
    assert seen.environment == ["READ_ME in guilty.py", "SET_ME in guilty.py"]
    assert seen.written == ["file by guilty.py", "made by guilty.py"]


# --- locks --------------------------------------------------------------------------------------------------------


def lock_entries(text: str) -> list[tuple[str, str, str, int]]:
    """(name, version, marker, number of hashes) of each entry of a lock.

    >>> lock_entries('a==1 ; sys_platform == "never" \\\\\\n    --hash=sha256:00\\n    # via b\\n')
    [('a', '1', 'sys_platform == "never"', 1)]
    """
    entries: list[tuple[str, str, str, int]] = []
    for line in text.splitlines():
        if line.startswith("    --hash=sha256:"):
            name, version, marker, hashes = entries.pop()
            entries.append((name, version, marker, hashes + 1))
        elif line and not line.lstrip().startswith("#"):
            requirement, _, marker = line.rstrip(" \\").partition(" ; ")
            name, _, version = requirement.partition("==")
            entries.append((name, version, marker, 0))
    return entries


def read_lock(name: str) -> list[tuple[str, str, str, int]]:
    return lock_entries((REQUIREMENTS / f"{name}.txt").read_text("utf-8"))


def direct_requirements(name: str) -> Iterator[tuple[str, str]]:
    """(name, version or nothing) of what an .in file asks for, the files that it includes as well."""
    for line in (REQUIREMENTS / f"{name}.in").read_text("utf-8").splitlines():
        if line.startswith("-r "):
            yield from direct_requirements(line.removeprefix("-r ").removesuffix(".in"))
        elif wanted := line.partition("#")[0].strip():
            package, _, version = wanted.partition(";")[0].strip().partition("==")
            yield package.partition("[")[0], version


def test_every_requirement_file_has_a_lock() -> None:
    assert {path.stem for path in REQUIREMENTS.glob("*.in")} == set(LOCKS)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_complete_hashed_and_names_no_index(name: str) -> None:
    text = (REQUIREMENTS / f"{name}.txt").read_text("utf-8")
    assert re.search(r"--(extra-)?index-url|--find-links|--trusted-host|://", re.sub(r"(?m)^\s*#.*", "", text)) is None
    entries = read_lock(name)
    assert len(entries) > 50
    assert [entry for entry in entries if not (re.fullmatch(r"[a-z0-9._-]+", entry[0]) and entry[1] and entry[3])] == []
    locked = {(package, version) for package, version, _, _ in entries}
    packages = {package for package, _ in locked}
    wished = set(direct_requirements(name))
    assert {package for package, _ in wished} <= packages
    assert {pin for pin in wished if pin[1]} <= locked


@pytest.mark.parametrize(
    ("name", "banned"),
    [
        (
            "serving",
            {"torch", "ultralytics", "prefect", "dvc", "great-expectations", "mlflow", "mlflow-skinny", "pandas"},
        ),
        ("inference", {"torch", "ultralytics", "dvc", "great-expectations", "mlflow"}),
    ],
)
def test_what_the_inference_side_never_installs(name: str, banned: set[str]) -> None:
    assert not {package for package, _, _, _ in read_lock(name)} & banned


@pytest.mark.parametrize("name", LOCKS)
def test_one_cv2_and_it_is_headless(name: str) -> None:
    markers = {package: marker for package, _, marker, _ in read_lock(name) if package.startswith("opencv")}
    assert markers.pop("opencv-python-headless") == ""
    assert set(markers) <= {"opencv-python"}
    assert set(markers.values()) <= {"sys_platform == 'never'"}


def test_one_onnx_runtime_everywhere() -> None:
    found = {
        (package, version, marker)
        for name in LOCKS
        for package, version, marker, _ in read_lock(name)
        if package.startswith("onnxruntime")
    }
    assert {(package, marker) for package, _, marker in found} == {
        ("onnxruntime", "platform_machine != 'x86_64'"),
        ("onnxruntime-gpu", "platform_machine == 'x86_64'"),
    }
    assert len({version for _, version, _ in found}) == 1


# --- documents ----------------------------------------------------------------------------------------------------

README = (REPOSITORY / "README.md").read_text("utf-8")
MAKEFILE = (REPOSITORY / "Makefile").read_text("utf-8")


def code_of(markdown: str) -> str:
    """Fenced blocks and inline code of a document, a line each.

    >>> code_of("make sure to run `make demo`")
    'make demo'
    """
    return "\n".join(
        fenced or inline for fenced, inline in re.findall(r"(?s)```[^\n]*\n(.*?)```|`([^`\n]+)`", markdown)
    )


def test_every_make_target_of_the_readme_exists() -> None:
    named = set(re.findall(r"(?m)(?:^|\s)make ([a-z][a-z-]*)", code_of(README)))
    assert named >= {"demo", "down"}
    assert named <= set(re.findall(r"(?m)^([a-z][a-z-]*):", MAKEFILE))


def commands_of(group: Any) -> dict[str, Any]:
    """Command name to command; empty for a command that is no group."""
    return dict(getattr(group, "commands", {}))


def test_every_command_of_the_readme_exists() -> None:
    import typer

    from deployments.cli import app

    top = commands_of(typer.main.get_command(app))
    named = re.findall(r"(?m)(?:^|[\s/])passline ([a-z][a-z-]*)(?: ([a-z][a-z-]*)\b(?![./]))?", code_of(README))
    assert {"submit", "dataset"} <= {first for first, _ in named}
    unknown = [
        f"passline {first} {second}".strip()
        for first, second in named
        if first not in top or (second and commands_of(top[first]) and second not in commands_of(top[first]))
    ]
    assert unknown == []


def test_make_help_lists_the_verbs() -> None:
    done = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60)
    listed = {line.split()[0] for line in done.stdout.splitlines() if line}
    assert listed >= {"setup", "demo", "up", "down", "test", "check", "bench"}


def test_the_licence_is_said_alike_everywhere() -> None:
    assert "GNU AFFERO GENERAL PUBLIC LICENSE" in (REPOSITORY / "LICENSE").read_text("utf-8")[:400]
    assert "AGPL-3.0-or-later" in README
    assert PYPROJECT["project"]["license"] == "AGPL-3.0-or-later"


def test_no_file_knows_a_machine() -> None:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60).stdout
    needles = [f"/{folder}/".encode() for folder in ("work", "root")] + [b"/".join((b"shared", b"data"))]
    files = [path for name in names.split("\0") if name and (path := REPOSITORY / name).is_file()]
    assert len(files) > 100
    found = [
        f"{path.relative_to(REPOSITORY)}: {needle.decode()}"
        for path in files
        for needle in needles
        if needle in path.read_bytes()
    ]
    assert found == []

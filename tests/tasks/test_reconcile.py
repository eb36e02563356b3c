"""The aliases follow what the host serves."""

import pytest

from data_contracts.errors import RegistryError
from data_contracts.release import DesiredState, HostReport, LoadedRelease, WorkerReport, now
from tasks.reconcile import plan, served_model
from tasks.registry import RegisteredVersion

A, B, C = "a" * 64, "b" * 64, "c" * 64
ONE, TWO = RegisteredVersion("plates", 1, A, "v1", "r1"), RegisteredVersion("plates", 2, B, "v2", "r2")


def worker(name: str, digest: str | None) -> WorkerReport:
    release = LoadedRelease(
        digest=digest or A, name="plates", version="v", warm=True, load_s=0.1, provider="cpu", precision="fp32"
    )
    return WorkerReport(
        worker_id=name,
        pid=1,
        started_at=now(),
        generation=1,
        active=digest,
        loaded=(release,) if digest else (),
        fingerprint="f",
    )


def host(*active: str | None) -> HostReport:
    workers = tuple(worker(f"w{index}", digest) for index, digest in enumerate(active))
    return HostReport(host="local", desired=DesiredState(generation=1, active=A), workers=workers)


@pytest.mark.parametrize(
    ("case", "report", "aliases", "champion"),
    [
        ("agree", host(A, A), {"champion": ONE}, None),
        ("host rolled back", host(A), {"champion": TWO, "previous": ONE}, ONE),
        ("cut before the aliases moved", host(B), {"champion": ONE}, TWO),
        ("first promotion cut", host(A), {}, ONE),
        ("workers differ", host(A, B), {"champion": ONE}, None),
        ("no worker", host(), {"champion": ONE}, None),
        ("worker without release", host(None), {"champion": ONE}, None),
    ],
)
def test_plan(
    case: str, report: HostReport, aliases: dict[str, RegisteredVersion], champion: RegisteredVersion | None
) -> None:
    assert plan(report, aliases, [TWO, ONE]).champion == champion


def test_a_digest_that_the_registry_does_not_know_is_an_alarm() -> None:
    with pytest.raises(RegistryError, match=C):
        plan(host(C), {"champion": ONE}, [TWO, ONE])


def test_the_served_models_name_comes_from_the_workers() -> None:
    assert served_model(host(A, A)) == "plates"
    assert served_model(host()) is None

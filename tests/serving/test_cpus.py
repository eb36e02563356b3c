from __future__ import annotations

from pathlib import Path

import pytest

from serving.cpus import cpu_quota, threads_from_quota


def cgroup_v2(root: Path, limits: dict[str, str], own: str = "/") -> tuple[Path, Path]:
    """A fake cgroup version 2 tree: folder to content of cpu.max; and the process's own group."""
    for folder, content in limits.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "cpu.max").write_text(content)
    own_file = root / "self"
    own_file.write_text(f"0::{own}\n")
    return root, own_file


QUOTAS = {
    "one CPU, two workers": ("100000 100000", 2, 64, 1),
    "four CPUs, two workers": ("400000 100000", 2, 64, 2),
    "no limit": ("max 100000", 2, 8, 4),
    "part of a CPU does not count": ("350000 100000", 1, 64, 3),
    "less than one CPU": ("50000 100000", 1, 64, 1),
    "affinity is tighter": ("800000 100000", 1, 2, 2),
    "more workers than CPUs": ("max 100000", 9, 4, 1),
    "unreadable": ("nonsense", 1, 4, 4),
}


@pytest.mark.parametrize(("limit", "workers", "cpus", "threads"), QUOTAS.values(), ids=QUOTAS)
def test_threads_follow_the_quota(tmp_path, limit, workers, cpus, threads):
    root, own = cgroup_v2(tmp_path, {".": limit})
    assert threads_from_quota(workers, cpus=cpus, cgroup_root=root, own_cgroups=own) == threads


def test_a_parent_s_limit_holds_for_its_children(tmp_path):
    root, own = cgroup_v2(tmp_path, {"pod": "200000 100000", "pod/app": "max 100000"}, own="/pod/app")
    assert cpu_quota(root, own) == 2.0


def test_the_own_group_s_limit_is_found(tmp_path):
    root, own = cgroup_v2(tmp_path, {"pod": "max 100000", "pod/app": "300000 100000"}, own="/pod/app")
    assert cpu_quota(root, own) == 3.0


@pytest.mark.parametrize(("quota", "cpus"), [("250000", 2.5), ("-1", None)], ids=["limited", "unlimited"])
def test_version_1(tmp_path, quota, cpus):
    group = tmp_path / "cpu" / "docker"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text(quota)
    (group / "cpu.cfs_period_us").write_text("100000")
    own = tmp_path / "self"
    own.write_text("5:memory:/other\n4:cpu,cpuacct:/docker\n")
    assert cpu_quota(tmp_path, own) == cpus


def test_without_control_groups_the_affinity_counts(tmp_path):
    assert threads_from_quota(1, cpus=3, cgroup_root=tmp_path, own_cgroups=tmp_path / "none") == 3


def test_here_and_now_it_is_at_least_one():
    assert threads_from_quota(1) >= 1
    assert threads_from_quota(10_000) == 1

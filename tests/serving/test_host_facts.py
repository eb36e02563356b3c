"""What is known of a host."""

from __future__ import annotations

from pathlib import Path

from serving.host_facts import cpu_model, host_facts


def test_the_cpu_is_named_by_model_and_instruction_sets(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("model name\t: Fast 9000\nflags\t\t: avx512_bf16 fma\n\nmodel name\t: another\n")
    assert cpu_model(file) == "Fast 9000; avx512_bf16 fma"
    assert cpu_model(tmp_path / "none")


def test_libraries_are_named_with_their_versions_and_absent_ones_too() -> None:
    libraries = host_facts()["libraries"]
    assert isinstance(libraries, dict)
    assert [bool(libraries[name]) for name in ("onnxruntime", "onnxruntime-gpu")].count(True) == 1

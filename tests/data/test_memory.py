"""The free memory is the least that the machine and every enclosing control group leave."""

from pathlib import Path

import pytest

from resperturb.data import memory

GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {16 * GIB // 1024} kB\n")
    return tmp_path


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(str(content))


def test_without_limits_it_is_what_the_system_says(machine):
    assert memory.available_memory() == 16 * GIB
    (machine / "membership").write_text("0::/\n1:cpu,cpuacct:/x\n")
    group(machine / "cgroup", memory__max="max", memory__current=5, memory__stat="inactive_file 1\n")
    assert memory.available_memory() == 16 * GIB


def test_a_limit_counts_and_files_that_can_be_dropped_do_not(machine):
    (machine / "membership").write_text("0::/job/step\n")
    group(
        machine / "cgroup" / "job",
        memory__max=8 * GIB,
        memory__current=6 * GIB,
        memory__stat=f"anon 7\ninactive_file {GIB}\n",
    )
    assert memory.available_memory() == 3 * GIB
    group(machine / "cgroup" / "job" / "step", memory__max=2 * GIB, memory__current=GIB, memory__stat="anon 1\n")
    assert memory.available_memory() == GIB


def test_the_older_control_groups_count_too(machine):
    (machine / "membership").write_text("5:devices:/\n4:memory:/slurm/job_7\n")
    group(
        machine / "cgroup" / "memory" / "slurm",
        memory__limit_in_bytes=4 * GIB,
        memory__usage_in_bytes=2 * GIB,
        memory__stat=f"total_inactive_file {GIB}\n",
    )
    assert memory.available_memory() == 3 * GIB


def test_in_a_container_its_group_is_the_root_of_what_it_sees(machine):
    (machine / "membership").write_text("0::/kubepods/pod1\n")
    group(machine / "cgroup", memory__max=2 * GIB, memory__current=0, memory__stat="")
    assert memory.available_memory() == 2 * GIB


def test_a_group_that_is_over_its_limit_leaves_next_to_nothing(machine):
    (machine / "membership").write_text("0::/\n")
    group(machine / "cgroup", memory__max=10, memory__current=20, memory__stat="")
    assert memory.available_memory() == 1

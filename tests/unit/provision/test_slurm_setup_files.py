"""From nodes.toml to the files that Slurm reads: the exact texts, and what is refused."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.installation_checks import examine_slurm_configuration
from heliostat.errors import Invalid
from heliostat.provision.managed_files import FileOrigin, detect_origin, with_header
from heliostat.provision.slurm import name_validation
from heliostat.provision.slurm.configuration import (
    FILE_HEADER,
    render_node_script,
    render_shared_files,
    render_slurmdbd_conf,
)
from heliostat.provision.slurm.hardware import normalize_gpu_type, render_nodes_toml
from heliostat.provision.slurm.nodes_file import parse_nodes_file
from heliostat.provision.slurm.paths import SlurmPaths

CASES = sorted((Path(__file__).parents[2] / "cases" / "slurm_setup").iterdir())
NODE = '[[nodes]]\nname = "gpu1"\ncpus = 8\nmemory = "10G"\n'
LEAST = f'controller = "gpu1"\n{NODE}'
SAID = """\
NodeName=gpu1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=515000
UpTime=3-04:05:06
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-6a7f)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-6a80)
NodeName=gpu2.example.org CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=64000
GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-1)
GPU 1: Tesla T4 (UUID: GPU-2)
GPU 2: NVIDIA GeForce RTX 4090 (UUID: GPU-3)
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_description_becomes_exactly_these_files(case: Path) -> None:
    described = parse_nodes_file((case / "nodes.toml").read_text())
    files = render_shared_files(described, SlurmPaths()) | {
        "slurmdbd.conf": render_slurmdbd_conf(described, SlurmPaths(), "secret")
    }
    for name, text in files.items():
        assert text == (case / name).read_text(), name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_doctor_has_nothing_to_say_of_them(case: Path) -> None:
    text = render_shared_files(parse_nodes_file((case / "nodes.toml").read_text()), SlurmPaths())["slurm.conf"]
    config = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert {level for _, level, _, _ in examine_slurm_configuration(config, 4)} == {"ok"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes = [", "not valid TOML"),
        (NODE, "controller is missing"),
        ('controller = "gpu1"', "there are no nodes"),
        (f'controller = "a b"\n{NODE}', "is not a valid host name"),
        (f'controller = "localhost"\n{NODE}', "is not a valid host name"),
        (f'cluster = "Lab"\n{LEAST}', "is not a valid cluster name"),
        (f'cluster = "lab\\nInclude=/x"\n{LEAST}', "is not a valid cluster name"),
        (f'controller_address = "10.0.0.1)\\nX=1"\n{LEAST}', "is not an address"),
        (f'colour = "red"\n{LEAST}', "unknown key: colour"),
        (f"{LEAST}speed = 3\n", "unknown key: speed"),
        (LEAST + NODE, "gpu1 appears more than once"),
        (LEAST.replace('name = "gpu1"', 'name = "DEFAULT"'), "is not a valid host name"),
        (LEAST.replace('name = "gpu1"', 'name = "gpu1 Gres=gpu:9"'), "is not a valid host name"),
        (LEAST.replace('name = "gpu1"', 'name = "gpu[4-1]"'), "is not a range"),
        (LEAST.replace('name = "gpu1"', 'name = "gpu[1-99999]"'), "too many"),
        (LEAST.replace('name = "gpu1"', 'name = "gpu[1][2]"'), "is not a valid range"),
        (LEAST.replace('name = "gpu1"', 'name = "gpu[1-2]"\nport = 7000'), "cannot be the same for several nodes"),
        (LEAST.replace("cpus = 8", "cpus = 0"), "cpus is 0"),
        (LEAST.replace("cpus = 8", "cpus = true"), "cpus is True"),
        (LEAST.replace("cpus = 8", "cpus = 8\nsockets = 3"), "are not 8 cpus"),
        (LEAST.replace('"10G"', '"lots"'), "memory is 'lots'"),
        (LEAST.replace('"10G"', "10"), "memory is 10"),
        (f"{LEAST}gpus = {{ 4090 = 1 }}\n", "is not a valid GPU type"),
        (f'{LEAST}gpus = {{ "a100:4,gpu" = 1 }}\n', "is not a valid GPU type"),
        (f"{LEAST}gpus = {{ a100 = 0 }}\n", "gpus of type a100 is 0"),
        (f'{LEAST}gpus = {{ a100 = "/etc/passwd" }}\n', "gpus of type a100"),
        (f'{LEAST}gpus = {{ a100 = "/dev/../etc/x" }}\n', "gpus of type a100"),
        (f'{LEAST}gpus = {{ a100 = 2, t4 = "/dev/nvidia1" }}\n', "/dev/nvidia1 appears more than once"),
        (f'{LEAST}features = ["disk=ssd"]\n', "is not a valid feature"),
        (f'{LEAST}features = "ssd"\n', "features is 'ssd'"),
        (f'{LEAST}[[partitions]]\nname = "ALL"\n', "is not a valid partition name"),
        (f'{LEAST}[[partitions]]\nname = "a"\nnodes = ["gpu7"]\n', "has unknown nodes: gpu7"),
        (f'{LEAST}[[partitions]]\nname = "a"\nmax_time = "soon"\n', "max_time is 'soon'"),
        (f'{LEAST}[[partitions]]\nname = "a"\n[[partitions]]\nname = "a"\n', "a appears more than once"),
        (
            f'{LEAST}[[partitions]]\nname = "a"\ndefault = true\n[[partitions]]\nname = "b"\ndefault = true\n',
            "Several partitions are the default: a, b",
        ),
        (f"{LEAST}[ports]\ncontroller = 70000\n", "controller is 70000"),
        (f'{LEAST}[settings]\nInclude = "/tmp/x"\n', "'Include' cannot be set"),
        (f'{LEAST}[settings]\nSLURMUSER = "root"\n', "'SLURMUSER' cannot be set"),
        (f'{LEAST}[settings]\nProlog = "/x\\nSlurmUser=root"\n', "value of Prolog"),
        (f"{LEAST}[settings]\nKillWait = 2.5\n", "value of KillWait"),
    ],
)
def test_what_would_harm_is_refused_with_a_hint(text: str, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_nodes_file(text)
    assert words in refused.value.message
    assert refused.value.hint


def test_the_example_of_the_documentation_can_be_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "admins.md").read_text(encoding="utf-8")
    section = page.partition("### Set up a Slurm cluster")[2].partition("\n### ")[0]
    described = parse_nodes_file(section.partition("```toml\n")[2].partition("```")[0])
    assert [machine.name for machine in described.nodes] == ["gpu1", "gpu2", "gpu3", "gpu4"]


@given(st.text(max_size=30))
def test_no_name_can_bring_a_line_or_a_word_of_its_own_into_the_files(name: str) -> None:
    quoted = "".join(f"\\U{ord(letter):08x}" for letter in name if not 0xD800 <= ord(letter) < 0xE000)
    try:
        described = parse_nodes_file(LEAST.replace('name = "gpu1"', f'name = "{quoted}"'))
    except Invalid:
        return
    for machine in described.nodes:
        assert machine.name.replace("-", "").isalnum()
        assert machine.name.isascii()


def test_ranges_keep_their_zeros() -> None:
    assert name_validation.expand_ranges("gpu[08-10,3]") == ("gpu08", "gpu09", "gpu10", "gpu3")
    assert name_validation.expand_ranges("gpu1") == ("gpu1",)


def test_what_machines_say_of_themselves_can_be_read_back() -> None:
    described = parse_nodes_file(f'controller = "gpu1"\n{render_nodes_toml(SAID)}')
    first, second = described.nodes
    assert (first.cpus, first.sockets, first.memory_mib) == (64, 2, 515000 - 10300)
    assert [(gpus.type, gpus.count) for gpus in first.gpus] == [("a100-sxm4-80gb", 2)]
    assert second.name == "gpu2"
    assert {gpus.type: gpus.device_files for gpus in second.gpus} == {
        "rtx-4090": ("/dev/nvidia0", "/dev/nvidia2"),
        "t4": ("/dev/nvidia1",),
    }


@pytest.mark.parametrize(
    "said", ["", "GPU 0: NVIDIA A100 (UUID: x)", "NodeName=gpu1 CPUs=4", "NodeName=a;b CPUs=4"]
)
def test_what_says_too_little_is_refused(said: str) -> None:
    with pytest.raises(Invalid) as refused:
        render_nodes_toml(said)
    assert refused.value.hint


def test_types_of_gpus_are_one_short_word() -> None:
    assert normalize_gpu_type("NVIDIA H100 80GB HBM3") == "h100-80gb-hbm3"
    assert normalize_gpu_type("Quadro RTX 6000") == "rtx-6000"


def test_a_file_knows_who_made_it() -> None:
    ours = with_header(FILE_HEADER, "A=1\n")
    assert detect_origin(ours) is FileOrigin.OURS
    assert detect_origin(ours + "B=2\n") is FileOrigin.CHANGED
    assert detect_origin("A=1\n") is FileOrigin.FOREIGN
    assert detect_origin("") is FileOrigin.FOREIGN


@pytest.mark.parametrize("prefix", ["relative", "/a b", "/a/../b", "/a;b", "/" + "x" * 100])
def test_a_prefix_that_would_harm_is_refused(prefix: str) -> None:
    with pytest.raises(Invalid):
        SlurmPaths(prefix)


def test_the_script_is_one_a_shell_can_read_and_has_no_key_unless_told() -> None:
    described = parse_nodes_file(LEAST)
    plain, with_key = (
        render_node_script(described, SlurmPaths()),
        render_node_script(described, SlurmPaths(), b"k" * 128),
    )
    for text in (plain, with_key):
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    assert "a2tra2tr" in with_key
    assert "a2tra2tr" not in plain
    assert "\nStoragePass=" not in with_key


def test_slurmd_is_tried_again_where_gpus_come_late_and_systemd_is_asked_only_on_the_machine_itself() -> None:
    unit = "Restart=on-failure\n"
    assert unit in render_node_script(parse_nodes_file(LEAST), SlurmPaths())
    assert unit not in render_node_script(parse_nodes_file(LEAST), SlurmPaths("/srv/try"))

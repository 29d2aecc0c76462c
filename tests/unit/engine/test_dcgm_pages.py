"""DCGM exporter pages, written by hand after the formats of its releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_tuning.engine.dcgm import MIB, GPUReading, collection_interval, mean, read_gpus, usable


def line(field, value, *, uuid="GPU-a", host='Hostname="n1"', more="", stamp=""):
    labels = (
        f'gpu="0",UUID="{uuid}",pci_bus_id="0:1",device="nvidia0",modelName="H200",{host}{more}'
    )
    return f"{field}{{{labels}}} {value}{stamp}\n"


WORKLOAD = ',container="engine",namespace="ml",pod="bench-1"'
RENAMED = (
    ',container="exporter",namespace="gpu",pod="dcgm-xyz",exported_container="engine",'
    'exported_namespace="ml",exported_pod="bench-1"'
)


@pytest.mark.parametrize("host", ['Hostname="n1"', 'hostname="n1"'])
@pytest.mark.parametrize(
    "more",
    [
        WORKLOAD,
        RENAMED,
        ',container_name="engine",pod_namespace="ml",pod_name="bench-1"',
    ],
)
def test_every_spelling_of_the_labels(host, more):
    [reading] = read_gpus(line("DCGM_FI_DEV_POWER_USAGE", 312.5, host=host, more=more))
    identity = reading.identity
    assert (identity.host, identity.pod, identity.namespace, identity.container) == (
        "n1", "bench-1", "ml", "engine",
    )  # fmt: skip
    assert (identity.uuid, identity.model, identity.mig_instance) == ("GPU-a", "H200", None)


def test_units():
    [reading] = read_gpus(
        line("DCGM_FI_DEV_FB_USED", 1024)
        + line("DCGM_FI_PROF_DRAM_ACTIVE", 0.75)
        + line("DCGM_FI_DEV_MEM_COPY_UTIL", 40)
        + line("DCGM_FI_DEV_SM_CLOCK", 1980)
    )
    assert reading.memory_used_bytes == 1024 * MIB
    assert reading.dram_active_percent == 75
    assert reading.memory_utilization_percent == 40
    assert reading.sm_clock_megahertz == 1980


def test_missing_profiling_fields_are_absent_not_zero():
    [reading] = read_gpus(line("DCGM_FI_DEV_FB_USED", 10))
    assert reading.dram_active_percent is None
    assert reading.sm_active_percent is None


@pytest.mark.parametrize(
    "blank",
    [
        "NaN",
        "2147483632",  # 32-bit integer: no value
        "9223372036854775794",  # 64-bit integer: not supported
        "140737488355328.000000",  # float: no value
        "140737488355331.000000",  # float: no permission
    ],
)
def test_blank_values_are_absent(blank):
    [reading] = read_gpus(line("DCGM_FI_DEV_FB_USED", 10) + line("DCGM_FI_PROF_DRAM_ACTIVE", blank))
    assert reading.dram_active_percent is None


def test_mig_instances_are_devices_of_their_own():
    page = "".join(
        line(
            "DCGM_FI_PROF_DRAM_ACTIVE", value, more=f',GPU_I_PROFILE="1g.18gb",GPU_I_ID="{number}"'
        )
        for number, value in ((7, 0.1), (9, 0.9))
    )
    first, second = read_gpus(page)
    assert (first.identity.mig_instance, first.dram_active_percent) == ("7", pytest.approx(10))
    assert (second.identity.mig_instance, second.dram_active_percent) == ("9", pytest.approx(90))


def test_a_shared_device_that_is_listed_per_pod_is_one_device():
    page = "".join(
        line("DCGM_FI_DEV_POWER_USAGE", 300, more=f',pod="p{number}"') for number in range(3)
    )
    [reading] = read_gpus(page)
    assert reading.shared
    [own] = read_gpus(line("DCGM_FI_DEV_POWER_USAGE", 300, more=WORKLOAD))
    assert not own.shared


def test_two_devices():
    page = line("DCGM_FI_DEV_POWER_USAGE", 1) + line("DCGM_FI_DEV_POWER_USAGE", 2, uuid="GPU-b")
    assert [reading.power_watts for reading in read_gpus(page)] == [1, 2]


def at(power, stamp=""):
    return read_gpus(line("DCGM_FI_DEV_POWER_USAGE", power, stamp=stamp))[0]


def test_the_real_interval_is_seen_from_the_changes():
    pages = [(float(second), at(100 + second // 10)) for second in range(60)]
    assert collection_interval(pages) == 10
    assert collection_interval(pages[:12]) is None


def test_only_values_measured_inside_the_window_are_used():
    pages = [(float(second), at(second)) for second in range(0, 100, 5)]
    inside = usable(pages, start=20, end=50, interval_seconds=5)
    # A value of the page at 20 may have been measured at 15 already.
    assert [reading.power_watts for reading in inside] == [25, 30, 35, 40, 45, 50]


def test_an_exporter_that_is_slow_against_the_window_says_nothing():
    pages = [(float(second), at(second)) for second in range(100)]
    assert usable(pages, start=20, end=60, interval_seconds=30) == ()


def test_time_stamps_are_believed():
    pages = [(float(second), at(second, stamp=f" {second * 1000 - 8000}")) for second in range(60)]
    inside = usable(pages, start=20, end=40, interval_seconds=1)
    assert [reading.measured_at for reading in inside] == list(range(20, 41))


def test_a_mean_is_over_what_is_known():
    readings = [at(100), at(200), GPUReading(at(1).identity)]
    assert mean(readings, "power_watts") == 150
    assert mean(readings, "dram_active_percent") is None


def test_a_whole_page_in_the_exporters_default_fields():
    """Two cards, one of them the workload's; SM activity is not among the default fields."""
    page = (Path(__file__).parent / "dcgm_page.txt").read_text(encoding="utf-8")
    ours, idle = read_gpus(page)
    assert ours.identity.pod == "chat-run-1-x"
    assert ours.memory_used_bytes == 133923 * MIB
    assert ours.tensor_active_percent == pytest.approx(83.6, abs=0.1)
    assert ours.dram_active_percent == pytest.approx(21.1, abs=0.1)
    assert ours.engine_active_percent == pytest.approx(98.6, abs=0.1)
    assert (ours.memory_utilization_percent, ours.sm_clock_megahertz, ours.last_xid) == (
        29,
        1455,
        0,
    )
    assert ours.sm_active_percent is None
    assert (idle.identity.pod, idle.power_watts, idle.dram_active_percent) == (None, 76.221, None)
    assert not idle.shared


def test_a_field_whose_series_name_another_pod_makes_the_device_shared():
    page = line("DCGM_FI_DEV_POWER_USAGE", 300, more=WORKLOAD) + line(
        "DCGM_FI_PROF_DRAM_ACTIVE", 0.5, more=',container="c",namespace="ml",pod="other"'
    )
    assert read_gpus(page)[0].shared

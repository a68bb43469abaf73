"""Nodes against each other: which are slow, and which are refused."""

import dataclasses

import pytest

from golfray.sweep.node_probe import NodeProbe, flagged, refusal, slowness_of

NODE = NodeProbe(
    node="a",
    host="alpha",
    address="10.0.0.1",
    ranks=8,
    lane_ranks=8,
    device="NVIDIA H100 80GB HBM3",
    matmul_tflops=700.0,
    reduce_gb_s=150.0,
    read_mb_s=2000.0,
    mhz=1980,
    max_mhz=1980,
    python="3.11.7",
    torch="2.13.0",
    cuda="12.8",
    nccl="2.27.3",
    driver="570.86.15",
    seconds=4.0,
)


def node(name, **changes):
    return dataclasses.replace(NODE, node=name, host=name, address=f"10.0.0.{ord(name) - 96}", **changes)


OTHERS = [node("b", matmul_tflops=710.0), node("c", matmul_tflops=690.0), node("d", matmul_tflops=400.0)]


def test_what_is_written_is_read_again():
    assert NodeProbe.from_dict(NODE.to_dict()) == NODE
    assert NodeProbe.from_dict({**NODE.to_dict(), "of_a_later_version": 1}) == NODE
    with pytest.raises(TypeError, match="host"):
        NodeProbe.from_dict({name: value for name, value in NODE.to_dict().items() if name != "host"})


def test_a_node_alone_is_not_slow():
    assert slowness_of(NODE, [NODE]) == []
    assert refusal(NODE, [NODE], 1.01) is None


def test_it_is_the_median_of_the_others_that_counts():
    """Of 710, 690 and 400 that is 690: one slow node among the others changes little."""
    (products, _, _) = slowness_of(node("a", matmul_tflops=600.0), OTHERS)
    assert (products.measure, products.others) == ("matmul_tflops", 3)
    assert products.times == pytest.approx(690 / 600)
    assert products.words() == "matrix products: 1.15 times the time, against the median of 3 other nodes"


@pytest.mark.parametrize(
    ("changes", "slow"),
    [
        ({}, []),
        ({"matmul_tflops": 640.0}, []),
        ({"matmul_tflops": 600.0}, ["matmul_tflops"]),
        ({"reduce_gb_s": 110.0}, []),
        ({"reduce_gb_s": 90.0}, ["reduce_gb_s"]),
        ({"read_mb_s": 700.0}, []),
        ({"read_mb_s": 100.0}, ["read_mb_s"]),
        ({"reduce_gb_s": None, "read_mb_s": None}, []),
    ],
)
def test_what_is_worth_a_word(changes, slow):
    assert [found.measure for found in flagged(node("a", **changes), OTHERS)] == slow


def test_the_last_probe_of_a_node_counts_and_only_of_its_kind():
    other = node("b", matmul_tflops=700.0)
    before, cpu, larger = (
        dataclasses.replace(other, **change)
        for change in (
            {"matmul_tflops": 9999.0},
            {"node": "e", "device": "cpu", "matmul_tflops": 9999.0},
            {"node": "f", "lane_ranks": 16, "matmul_tflops": 9999.0},
        )
    )
    (products, *_) = slowness_of(NODE, [before, cpu, larger, other])
    assert (products.times, products.others) == (1.0, 1)
    assert products.words().endswith("against that of the one other node")


def test_a_node_is_refused_for_its_arithmetic_alone_and_only_where_that_is_asked_for():
    slow = node("a", matmul_tflops=500.0, reduce_gb_s=1.0)
    assert refusal(slow, OTHERS, None) is None
    assert refusal(slow, OTHERS, 1.5) is None
    assert refusal(slow, OTHERS, 1.2) == (
        "node 10.0.0.1 (a) is too slow: matrix products: 1.38 times the time, against the median of 3 other nodes "
        "(nodes.refuse_slower 1.2)"
    )

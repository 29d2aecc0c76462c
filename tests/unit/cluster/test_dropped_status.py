from vllm_tuning.cluster.apply import dropped


def test_what_an_older_schema_drops_is_named_by_its_path():
    wanted = {
        "sla": "Met",
        "usage": {"gpuSeconds": 1, "joules": 2},
        "history": [{"id": "a", "cost": 1}, {"id": "b", "cost": 2}],
        "rejected": ["x"],
    }
    stored = {
        "usage": {"gpuSeconds": 1},
        "history": [{"id": "a"}, {"id": "b"}],
        "rejected": ["x"],
    }
    assert dropped(wanted, stored) == ("sla", "usage.joules", "history[].cost")
    assert dropped(wanted, wanted) == ()

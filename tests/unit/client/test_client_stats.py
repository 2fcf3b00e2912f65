from heliostat.client import Client
from unit.client.stand_in_server import answer


def test_stats_are_asked_for_by_job_node_and_cluster(serve, tmp_path):
    server = serve(answer({"job_id": 3}), answer({"node": "a/b"}), answer({"span": "year"}))
    client = Client(home=tmp_path)
    assert client.stats.job(3)["job_id"] == 3
    assert client.stats.node("a/b", "month")["node"] == "a/b"
    assert client.stats.cluster("year")["span"] == "year"
    paths = [request.split(b" ")[1] for request in server.requests]
    assert paths == [
        b"/api/v1/jobs/3/stats",
        b"/api/v1/nodes/a%2Fb/stats?span=month",
        b"/api/v1/cluster/stats?span=year",
    ]

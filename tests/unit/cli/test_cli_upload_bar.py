from heliostat.cli.upload import how_far, upload_bar


def test_how_far_an_upload_is_is_said_with_its_pace_once_that_is_known():
    assert how_far(0, 2 * 2**20, 0.0) == "0.0 of 2.0 MiB"
    assert how_far(2**20, 2 * 2**20, 0.1) == "1.0 of 2.0 MiB"
    assert how_far(2**20, 2 * 2**20, 2.0) == "1.0 of 2.0 MiB, 0.5 MiB/s"


def test_where_nobody_looks_there_is_no_bar():
    with upload_bar() as progress:
        assert progress is None

from heliostat.cli.uploads import format_progress, upload_progress_bar


def test_how_far_an_upload_is_is_said_with_its_pace_once_that_is_known():
    assert format_progress(0, 2 * 2**20, 0.0) == "0.0 of 2.0 MiB"
    assert format_progress(2**20, 2 * 2**20, 0.1) == "1.0 of 2.0 MiB"
    assert format_progress(2**20, 2 * 2**20, 2.0) == "1.0 of 2.0 MiB, 0.5 MiB/s"


def test_where_nobody_looks_there_is_no_bar():
    with upload_progress_bar() as progress:
        assert progress is None

"""Run as the driver of a Spark cluster: computes over its workers, and looks for its secret where all can look."""

import glob
import json
import os
from pathlib import Path

from pyspark.sql import SparkSession


def where(_):
    return os.environ.get("HELIOSTAT_TASK_INDEX", "?")


def readable(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


spark = SparkSession.builder.getOrCreate()
context = spark.sparkContext
settings = Path(os.environ["SPARK_CONF_DIR"], "spark-defaults.conf")
secret = next(line.split()[1] for line in settings.read_text().splitlines() if "authenticate.secret" in line)
told = {
    "master": context.master,
    "sum": context.parallelize(range(1000), 8).map(lambda number: number * number).sum(),
    "ran_in": sorted(set(context.parallelize(range(64), 16).map(where).collect())),
    "mode": oct(settings.stat().st_mode & 0o777),
    "secret_seen": [path for path in glob.glob("/proc/[0-9]*/cmdline") if secret.encode() in readable(path)],
}
spark.stop()
print(json.dumps(told))

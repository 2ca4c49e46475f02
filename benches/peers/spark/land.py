"""Lands a Kafka topic as Parquet with Spark Structured Streaming, several times in one warm process.

land.py BROKERS TOPIC FOLDER CASE RUNS: a line of JSON on stdout for each run, with the seconds that it took.
"""

import json
import sys
import time
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

brokers, topic, folder, case, runs = sys.argv[1:]
# Spark's own distribution has the others.
left_out = ("hadoop-client-", "scala-library")
jars = [str(jar) for jar in sorted(Path(sys.prefix, "spark-kafka").glob("*.jar")) if not jar.name.startswith(left_out)]
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.jars", ",".join(jars))
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "4g")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
columns = "sensor_id string, ts timestamp, temperature double, humidity double, status string, seq long"
for run in range(int(runs)):
    begun = time.monotonic()
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    if case == "raw":
        rows = rows.select("value", "partition", "offset")
    else:
        rows = rows.select(from_json(col("value").cast("string"), columns).alias("row")).select("row.*")
    query = (
        rows.writeStream.format("parquet")
        .option("path", f"{folder}/table-{run}")
        .option("checkpointLocation", f"{folder}/checkpoint-{run}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.monotonic() - begun
    print(json.dumps({"version": pyspark.__version__, "seconds": seconds, "table": f"{folder}/table-{run}"}), flush=True)
spark.stop()

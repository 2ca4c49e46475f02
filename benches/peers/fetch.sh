#!/usr/bin/env bash
# Brings Spark or Flink, with what they need to read Kafka, into the cache, once, and prints where it is.
#
#   fetch.sh spark   prints the folder of a Python environment with Spark in it
#   fetch.sh flink   prints the folder of Flink's jars, `Land` compiled among them
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/peers

build_spark() {
    python3 -m venv "$1"
    "$1/bin/python" -m pip install -q --disable-pip-version-check pyspark==4.2.0
    mvn -q -B -f "$here/spark/pom.xml" dependency:copy-dependencies -DoutputDirectory="$1/spark-kafka" -DincludeScope=runtime
}

build_flink() {
    # The distribution is to be had as a Python package, of which only the jars are needed.
    local unpacked
    unpacked=$(mktemp -d)
    python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$unpacked" apache-flink-libraries==2.3.0
    tar -xzf "$unpacked"/apache*flink*libraries-2.3.0.tar.gz -C "$unpacked"
    cp "$unpacked"/apache*flink*libraries-2.3.0/deps/lib/*.jar "$1/"
    rm -rf "$unpacked"
    mvn -q -B -f "$here/flink/pom.xml" dependency:copy-dependencies -DoutputDirectory="$1" -DincludeScope=runtime
    javac -cp "$1/*" -d "$1" "$here/flink/Land.java"
}

target=$cache/$1-$(cat "$here/fetch.sh" "$here/$1"/* | sha256sum | cut -c1-12)
if [ ! -d "$target" ]; then
    echo "fetching $1 (once)" >&2
    rm -rf "$target.building"
    mkdir -p "$target.building"
    "build_$1" "$target.building" >&2
    mv -T "$target.building" "$target"
fi
echo "$target"

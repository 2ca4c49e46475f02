#!/usr/bin/env bash
# A real Kafka broker: one node, on loopback, on free ports, all its files in one folder.
#
#   kafka.sh serve [KEY=VALUE...]      for programs; commands: start, kill, stop, pause, resume
#   kafka.sh up DIR [KEY=VALUE...]     for people: starts a broker that stays, prints its address
#   kafka.sh down DIR                  stops it and removes DIR
#
# KEY=VALUE are broker settings. The JVM's flags come from TIDEMILL_KAFKA_JVM. See lib.sh for what "serve" answers.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
service=kafka
# Small and quick to start by default: the tests share a few cores with it.
read -ra jvm <<<"${TIDEMILL_KAFKA_JVM:--Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1}"

processes() { echo kafka; }

prepare() {
    local jars port id
    jars=$("$here/fetch.sh" kafka) || return 1
    run=("${JAVA_HOME:+$JAVA_HOME/bin/}java" "${jvm[@]}" -Dorg.slf4j.simpleLogger.showDateTime=true
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS" -cp "$jars/*")
    port=$(free_ports 2) || return 1
    address=127.0.0.1:$port
    sed -e "s|@PORT@|$port|g" -e "s|@CONTROLLER_PORT@|$((port + 1))|g" -e "s|@DATA@|$dir/data|g" \
        "$here/kafka/server.properties" >"$dir/server.properties"
    printf '%s\n' "$@" >>"$dir/server.properties"
    # Any 16 random bytes are a cluster id; asking Kafka for them would cost a JVM start.
    id=A$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c1-21)
    "${run[@]}" kafka.tools.StorageTool format --standalone -t "$id" -c "$dir/server.properties" \
        >"$dir/kafka.log" 2>&1
}

# Starts the broker and waits until it says that it serves requests: an open port would be too early.
launch() {
    local seen
    seen=$(stat -c %s "$dir/kafka.log") || return 1
    begin kafka "${run[@]}" kafka.Kafka "$dir/server.properties"
    until_ready kafka 60 says_started "$seen" || { slay kafka && return 1; }
}

says_started() { tail -c "+$(($1 + 1))" "$dir/kafka.log" | grep -q 'Kafka Server started'; }

obey() {
    case $1 in
    start) running kafka || launch ;;
    stop) stop kafka ;;
    kill) slay kafka ;;
    pause) signal kafka STOP ;;
    resume) signal kafka CONT ;;
    *) return 1 ;;
    esac
}

main "$@"

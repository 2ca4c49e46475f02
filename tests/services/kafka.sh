#!/usr/bin/env bash
# The one way to start a real Kafka broker: one node, on loopback, on free ports, all its files in one folder.
#
#   kafka.sh serve [KEY=VALUE...]      for programs: makes a folder under TMPDIR, prints "dir PATH", then reads commands
#                                      from stdin (start, kill, stop, pause, resume), one a line, and answers each with
#                                      "ok ADDRESS" or "failed WHY". When stdin ends (also because the program was
#                                      killed), the broker is killed and the folder removed.
#   kafka.sh up DIR [KEY=VALUE...]     for people: starts a broker that stays, prints its address
#   kafka.sh down DIR                  stops it and removes DIR
#
# KEY=VALUE are broker settings. The JVM's flags come from TIDEMILL_KAFKA_JVM. The broker's log is kafka.log in its
# folder, its process id is in the file `pid` there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Small and quick to start by default: the tests share a few cores with it.
read -ra jvm <<<"${TIDEMILL_KAFKA_JVM:--Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1}"
start_seconds=60
stop_seconds=30

dir='' address='' pid=''
java=()

# prepare KEY=VALUE...: writes the settings into `dir` and formats its data folder, once in a broker's life. Callers
# test it with `if`, where bash ignores `set -e`: so every step says for itself that it may fail.
prepare() {
    local jars port id
    jars=$("$here/fetch.sh" kafka) || return 1
    java=("${JAVA_HOME:+$JAVA_HOME/bin/}java" "${jvm[@]}" -Dorg.slf4j.simpleLogger.showDateTime=true
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS" -cp "$jars/*")
    port=$(free_ports) || return 1
    address=127.0.0.1:$port
    sed -e "s|@PORT@|$port|g" -e "s|@CONTROLLER_PORT@|$((port + 1))|g" -e "s|@DATA@|$dir/data|g" \
        "$here/kafka/server.properties" >"$dir/server.properties"
    printf '%s\n' "$@" >>"$dir/server.properties"
    # Any 16 random bytes are a cluster id; asking Kafka for them would cost a JVM start.
    id=A$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c1-21)
    "${java[@]}" kafka.tools.StorageTool format --standalone -t "$id" -c "$dir/server.properties" \
        >"$dir/kafka.log" 2>&1
}

# Prints a port that nothing listens on, nor on the next one. Below the range from which the kernel takes ports for
# outgoing connections: a client that retries a dead broker's address there can be given that very port, and a restart
# would find it taken.
free_ports() {
    local port
    for _ in {1..200}; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 6000 * 2))
        if ! listening "$port" && ! listening $((port + 1)); then
            echo "$port"
            return
        fi
    done
    echo "no free ports between 20000 and 32000" >&2
    return 1
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

running() { [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; }

# Starts the broker and waits until it says that it serves requests: an open port would be too early.
launch() {
    local seen deadline=$((SECONDS + start_seconds))
    seen=$(stat -c %s "$dir/kafka.log")
    setsid "${java[@]}" kafka.Kafka "$dir/server.properties" >>"$dir/kafka.log" 2>&1 </dev/null &
    pid=$!
    # Else bash would tell on stderr how its job died, each time that a test kills it.
    disown "$pid"
    echo "$pid" >"$dir/pid"
    until tail -c "+$((seen + 1))" "$dir/kafka.log" | grep -q 'Kafka Server started'; do
        running && [ $SECONDS -lt $deadline ] || return 1
        sleep 0.1
    done
}

# Asks the broker to end and waits; a broker that takes too long is killed. A paused one must wake to hear it.
stop() {
    local deadline=$((SECONDS + stop_seconds))
    running || return 0
    kill -TERM "$pid"
    kill -CONT "$pid"
    while running && [ $SECONDS -lt $deadline ]; do sleep 0.1; done
    slay
}

# Ends the broker at once.
slay() {
    running || return 0
    kill -KILL "$pid" 2>/dev/null || true
    # Until the kernel is done with it, its ports are taken and its files are locked. Bounded, since `down` may find a
    # broker whose new parent never reaps it.
    for _ in {1..500}; do
        running || return 0
        sleep 0.02
    done
}

# The end of the log, as one line, for a message.
log_tail() { tail -n 5 "$dir/kafka.log" 2>/dev/null | tr '\n' ' '; }

serve() {
    # The program may go away while it is owed an answer: that is an error to clean up after, not a death.
    trap '' PIPE
    trap 'slay; rm -rf "$dir"' EXIT
    dir=$(mktemp -d "${TMPDIR:-/tmp}/tidemill-kafka-XXXXXX")
    echo "dir $dir"
    local command
    while read -r command; do
        if [ "$command" = start ] && [ -z "$address" ] && ! prepare "$@"; then
            echo "failed to set up the broker: $(log_tail)"
            continue
        fi
        case $command in
        start) running || launch || { slay && echo "failed to start: $(log_tail)" && continue; } ;;
        stop) stop ;;
        kill) slay ;;
        pause) kill -STOP "$pid" ;;
        resume) kill -CONT "$pid" ;;
        *) echo "failed: no such command '$command'" && continue ;;
        esac
        echo "ok $address"
    done
}

up() {
    dir=$1
    shift
    if [ -e "$dir/address" ] && pid_of "$dir" >/dev/null; then
        echo "already up: $(cat "$dir/address")"
        return
    fi
    rm -rf "$dir"
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    if ! prepare "$@" || ! launch; then
        slay
        echo "the broker did not start, see $dir/kafka.log" >&2
        return 1
    fi
    echo "$address" >"$dir/address"
    echo "up: $address"
}

down() {
    dir=$1
    if pid=$(pid_of "$dir"); then
        stop
        echo "stopped"
    else
        echo "not up"
    fi
    rm -rf "$dir"
}

# Prints the process id of the broker of folder $1, if it runs. The id alone proves nothing: after a restart of the
# machine it may be somebody else's.
pid_of() {
    local id folder
    id=$(cat "$1/pid" 2>/dev/null) || return 1
    folder=$(cd "$1" && pwd)
    tr '\0' ' ' <"/proc/$id/cmdline" 2>/dev/null | grep -qF "kafka.Kafka $folder/server.properties" || return 1
    echo "$id"
}

command=${1:-}
case $command in
serve)
    shift
    serve "$@"
    ;;
up | down)
    shift
    "$command" "${@:?the folder is missing}"
    ;;
*)
    sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

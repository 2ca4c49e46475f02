# What the scripts of the services share: processes with a folder, free ports, and the two ways to run a service.
#
# A script sets `service` and defines
#
#   prepare [KEY=VALUE...]   writes the settings into `dir`, once in a service's life; sets `address`
#   obey COMMAND [ARGS...]   does what a program asks; "start" is one of its commands
#   processes                prints the names of its processes
#
# Callers test these with `if`, where bash ignores `set -e`: so every step says for itself that it may fail.
#
# A process NAME has its log in NAME.log and its id in NAME.pid, both in `dir`. Its command line names `dir`: after a
# restart of the machine its id may be somebody else's.

dir='' address='' why=''
stop_seconds=30

# begin NAME COMMAND...: starts a process in a session of its own.
begin() {
    local name=$1
    shift
    setsid "$@" >>"$dir/$name.log" 2>&1 </dev/null &
    echo $! >"$dir/$name.pid"
    # Else bash would tell on stderr how its job died, each time that a test kills it.
    disown $!
}

running() {
    local id
    id=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
    { tr '\0' ' ' <"/proc/$id/cmdline"; } 2>/dev/null | grep -qF "$dir"
}

# signal NAME SIGNAL
signal() { running "$1" && kill "-$2" "$(cat "$dir/$1.pid")"; }

# Ends a process at once, and waits until the kernel is done with it: until then its ports are taken.
slay() {
    signal "$1" KILL || return 0
    gone "$1"
}

# Waits until there is nothing left of a process that ends. Bounded, since `down` may find one whose new parent never
# reaps it.
gone() {
    local id
    id=$(cat "$dir/$1.pid")
    for _ in {1..500}; do
        [ -d "/proc/$id" ] || return 0
        sleep 0.02
    done
}

# Asks a process to end and waits; one that takes too long is killed. A paused one must wake to hear it.
stop() {
    local deadline=$((SECONDS + stop_seconds))
    signal "$1" TERM || return 0
    signal "$1" CONT || true
    while running "$1" && [ $SECONDS -lt $deadline ]; do sleep 0.1; done
    if running "$1"; then slay "$1"; else gone "$1"; fi
}

each_process() {
    local name
    for name in $(processes); do "$1" "$name"; done
}

# until_ready NAME SECONDS COMMAND...: waits until a command succeeds; not if the process ends before. Sets "why" if not.
until_ready() {
    local name=$1 seconds=$2 deadline=$((SECONDS + $2))
    shift 2
    until "$@"; do
        running "$name" || { why="the $name has ended" && return 1; }
        [ $SECONDS -lt $deadline ] || { why="the $name is not ready after $seconds s" && return 1; }
        sleep 0.1
    done
}

# free_ports COUNT: prints a port that nothing listens on, nor on those after it. Below the range from which the kernel
# takes ports for outgoing connections: a client that retries a dead service's address there can be given that very
# port, and a restart would find it taken.
free_ports() {
    local port at
    for _ in {1..200}; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 1500 * 8))
        for ((at = port; at < port + $1; at++)); do
            if listening "$at"; then continue 2; fi
        done
        echo "$port"
        return
    done
    echo "no free ports between 20000 and 32000" >&2
    return 1
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The ends of the logs, as one line, for a message.
log_tail() { tail -q -n 5 "$dir"/*.log 2>/dev/null | tr '\n' ' '; }

# serve [KEY=VALUE...]: for programs. Prints "dir PATH", then reads commands from stdin, one a line, and answers each
# with "ok ADDRESS" or "failed WHY". When stdin ends, also because the program was killed, all is killed and removed.
serve() {
    # The program may go away while it is owed an answer: that is an error to clean up after, not a death.
    trap '' PIPE
    trap 'each_process slay; rm -rf "$dir"' EXIT
    dir=$(mktemp -d "${TMPDIR:-/tmp}/tidemill-$service-XXXXXX")
    echo "dir $dir"
    local command
    while read -ra command; do
        if [ -z "$address" ] && ! prepare "$@"; then
            echo "failed to set up: $(log_tail)"
        elif why='' && obey "${command[@]}"; then
            echo "ok $address"
        else
            echo "failed to ${command[*]}: $why; $(log_tail)"
        fi
    done
}

# up DIR [KEY=VALUE...]: for people. Starts a service that stays, and prints its address.
up() {
    dir=$1
    shift
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    if [ -e "$dir/address" ] && running "$(processes | head -n 1)"; then
        echo "already up: $(cat "$dir/address")"
        return
    fi
    rm -rf "$dir"
    mkdir -p "$dir"
    if ! prepare "$@" || ! obey start; then
        each_process slay
        echo "$service did not start, see $dir: $why; $(log_tail)" >&2
        return 1
    fi
    echo "$address" >"$dir/address"
    echo "up: $address"
}

# down DIR: stops it and removes DIR.
down() {
    if ! dir=$(cd "$1" 2>/dev/null && pwd) || ! running "$(processes | head -n 1)"; then
        echo "not up"
        return
    fi
    each_process stop
    rm -rf "$dir"
    echo "stopped"
}

# main COMMAND ARGS...: what a script ends with.
main() {
    case ${1:-} in
    serve | up | down) "$@" ;;
    *)
        # The comment that the script begins with.
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
}

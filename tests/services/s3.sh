#!/usr/bin/env bash
# A store that speaks S3, with a bucket "tidemill", on loopback, in memory; it fails on request (see s3.py).
#
#   s3.sh serve            for programs; commands: start, kill, pause, resume
#   s3.sh up DIR           for people: starts one that stays, prints its address
#   s3.sh down DIR         stops it and removes DIR
#
# Any key and secret will do. See lib.sh for what "serve" answers.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
service=s3

processes() { echo s3; }

prepare() {
    python=$("$here/fetch.sh" python) || return 1
    port=$(free_ports 1) || return 1
    address=http://127.0.0.1:$port
}

obey() {
    case $1 in
    start)
        running s3 && return
        begin s3 "$python" "$here/s3.py" "$port" "$dir"
        until_ready s3 60 listening "$port"
        ;;
    kill) slay s3 ;;
    pause) signal s3 STOP ;;
    resume) signal s3 CONT ;;
    *) return 1 ;;
    esac
}

main "$@"

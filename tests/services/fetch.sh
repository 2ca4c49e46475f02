#!/usr/bin/env bash
# Brings what the tests need from package registries into the cache, once, and prints where it is.
#
#   fetch.sh kafka        prints the folder of the broker's jars
#   fetch.sh kafka-tools  prints the folder of the jars of its command-line tools
#   fetch.sh hdfs         prints the folder of Hadoop's jars
#   fetch.sh python       prints the python that has the packages of requirements.txt
#
# Each thing has a name made from the file that pins its versions, so a second run downloads nothing and a changed pin
# is a new thing. It is built under another name and renamed when whole: an interrupted download is never taken for a
# complete one. Everything but the answer goes to stderr.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/services

# once NAME BUILDER: makes the folder NAME by calling `BUILDER TEMPORARY_FOLDER`, unless it is there.
once() {
    local target=$cache/$1 building
    [ -d "$target" ] && return
    mkdir -p "$cache"
    # Several test processes may ask at once; the second one waits and finds it done.
    exec 9>"$cache/lock"
    flock 9
    if [ ! -d "$target" ]; then
        echo "fetching $1 (once)" >&2
        rm -rf "$cache/building-$1".*
        building=$(mktemp -d "$cache/building-$1.XXXXXX")
        "$2" "$building" >&2
        mv -T "$building" "$target"
    fi
    exec 9>&-
}

# A short name for the contents of its input.
digest() { sha256sum | cut -c1-12; }

# jars SERVICE: the jars that its pom.xml names, and theirs.
jars() {
    build_jars() {
        mvn -q -B -f "$pom" dependency:copy-dependencies -DoutputDirectory="$1" -DincludeScope=runtime
    }
    local pom=$here/$1/pom.xml name
    name=$1-$(digest <"$pom")
    once "$name" build_jars
    echo "$cache/$name"
}

build_python() {
    python3 -m venv "$1"
    "$1/bin/python" -m pip install -q --disable-pip-version-check -r "$here/requirements.txt"
}

case ${1:-} in
kafka | kafka-tools | hdfs) jars "$1" ;;
python)
    # A venv belongs to the interpreter that made it.
    interpreter=$(python3 -c 'import sys; print(sys.base_prefix, sys.version)')
    name=python-$(cat "$here/requirements.txt" - <<<"$interpreter" | digest)
    once "$name" build_python
    echo "$cache/$name/bin/python"
    ;;
*)
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

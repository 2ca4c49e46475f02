#!/usr/bin/env bash
# A real HDFS: a name node and a data node, on loopback, on free ports, all their files in one folder.
#
#   hdfs.sh serve [KEY=VALUE...]       for programs; commands: start, start|kill|pause|resume namenode|datanode,
#                                      admin ARGS (what `hdfs dfsadmin` takes)
#   hdfs.sh up DIR [KEY=VALUE...]      for people: starts one that stays, prints its address
#   hdfs.sh down DIR                   stops it and removes DIR
#
# KEY=VALUE are settings of hdfs-site.xml. See lib.sh for what "serve" answers.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
service=hdfs
# Both are small here, and the tests share a few cores with them.
jvm=(-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)

processes() { printf '%s\n' namenode datanode; }

prepare() {
    local jars port
    jars=$("$here/fetch.sh" hdfs) || return 1
    run=("${JAVA_HOME:+$JAVA_HOME/bin/}java" "${jvm[@]}" -cp "$dir/conf:$jars/*")
    port=$(free_ports 5) || return 1
    address=hdfs://127.0.0.1:$port
    http=$((port + 1)) data=$((port + 2))
    mkdir -p "$dir/conf" "$dir/data" || return 1
    configuration "fs.defaultFS=$address" "hadoop.tmp.dir=$dir/data" >"$dir/conf/core-site.xml"
    configuration dfs.replication=1 "dfs.namenode.http-address=127.0.0.1:$http" \
        "dfs.datanode.address=127.0.0.1:$data" "dfs.datanode.http.address=127.0.0.1:$((port + 3))" \
        "dfs.datanode.ipc.address=127.0.0.1:$((port + 4))" dfs.datanode.hostname=127.0.0.1 \
        dfs.client.use.datanode.hostname=true dfs.permissions.enabled=false dfs.namenode.safemode.extension=0 \
        dfs.namenode.fs-limits.min-block-size=1024 "$@" >"$dir/conf/hdfs-site.xml"
    "${run[@]}" org.apache.hadoop.hdfs.server.namenode.NameNode -format -force -nonInteractive \
        >"$dir/namenode.log" 2>&1
}

# configuration KEY=VALUE...: prints one of Hadoop's files of settings. Of a key that is there twice the last one counts.
configuration() {
    local setting
    echo "<configuration>"
    for setting in "$@"; do
        echo "<property><name>${setting%%=*}</name><value>${setting#*=}</value></property>"
    done
    echo "</configuration>"
}

start_one() {
    running "$1" && return
    case $1 in
    namenode)
        begin namenode "${run[@]}" org.apache.hadoop.hdfs.server.namenode.NameNode
        until_ready namenode 120 listening "$http"
        ;;
    datanode)
        begin datanode "${run[@]}" org.apache.hadoop.hdfs.server.datanode.DataNode
        until_ready datanode 120 listening "$data"
        ;;
    *) return 1 ;;
    esac
}

# Whether the name node has left its safe mode and knows the data node.
works() {
    local state
    state=$(exec 3<>"/dev/tcp/127.0.0.1/$http" &&
        printf 'GET /jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState HTTP/1.0\r\n\r\n' >&3 && cat <&3) || return 1
    grep -q '"NumLiveDataNodes" : 1' <<<"$state" && grep -q '"FSState" : "Operational"' <<<"$state"
} 2>/dev/null

obey() {
    case $1 in
    start)
        # Alone it is both, and waits until they work together.
        if [ $# -gt 1 ]; then
            start_one "$2"
        else
            start_one namenode && start_one datanode && until_ready datanode 120 works ||
                { each_process slay && return 1; }
        fi
        ;;
    kill) slay "$2" ;;
    pause) signal "$2" STOP ;;
    resume) signal "$2" CONT ;;
    admin) "${run[@]}" org.apache.hadoop.hdfs.tools.DFSAdmin "${@:2}" >>"$dir/admin.log" 2>&1 ;;
    *) return 1 ;;
    esac
}

main "$@"

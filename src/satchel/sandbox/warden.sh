#!/bin/sh
# Ends what the tools of a Satchel left running when that Satchel was killed: then nobody else does.
#
# $1 is the mark in the environment of everything that this Satchel started. Its stdin tells the leaders of process groups,
# "+PID" for one that starts and "-PID" for one that is gone with all that came from it. Satchel alone holds the other end:
# the end of stdin is the end of Satchel, however that came.
trap '' HUP INT QUIT TERM
mark=$1
leaders=' '
while read -r line; do
    pid=${line#?}
    case $line in
        +*) leaders="$leaders$pid " ;;
        -*) case $leaders in *" $pid "*) leaders="${leaders%%" $pid "*} ${leaders#*" $pid "}" ;; esac ;;
    esac
done

# The pids of all that run: of a leader's session or group, with the mark, and their descendants. Without /proc: the groups.
running() {
    if ! [ -r /proc/self/stat ]; then
        for pid in $leaders; do kill -s 0 -- "-$pid" && echo "-$pid"; done
        return
    fi
    cd /proc || return
    { grep -ls -- "$mark" [0-9]*/environ; cat [0-9]*/stat; } | awk -v leaders="$leaders" '
        BEGIN { split(leaders, names, " "); for (at in names) leads[names[at]] = 1 }
        /^[0-9]+\/environ$/ { sub("/environ", ""); found[$0] = 1; next }
        {
            pid = $1
            sub(/.*\) /, "")    # the name may hold anything
            if ($1 == "Z" || $1 == "X") next
            parent[pid] = $2
            if (($3 in leads) || ($4 in leads)) found[pid] = 1
        }
        END {
            do {
                grown = 0
                for (pid in parent) if (!(pid in found) && (parent[pid] in found)) { found[pid] = 1; grown = 1 }
            } while (grown)
            for (pid in found) if (pid in parent) print pid
        }'
} 2>/dev/null

# A second to end in good order, as with a time limit. Then three empty looks: while a process becomes another program, its
# environment can't be seen. What hangs in the kernel is given up after half a minute.
looks=0
empty=0
while [ "$empty" -lt 3 ] && [ "$looks" -lt 300 ]; do
    pids=$(running)
    if [ -z "$pids" ]; then
        empty=$((empty + 1))
    elif [ "$looks" -eq 0 ]; then
        kill -s TERM -- $pids 2>/dev/null
        kill -s CONT -- $pids 2>/dev/null    # who is stopped gets the first signal only when it goes on
    else
        empty=0
        [ "$looks" -lt 10 ] || kill -s KILL -- $pids 2>/dev/null
    fi
    looks=$((looks + 1))
    sleep 0.1 2>/dev/null || sleep 1
done

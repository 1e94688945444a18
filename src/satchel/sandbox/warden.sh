#!/bin/sh
# Ends what tools left running after Satchel was killed and can no longer end it itself.
#
# $1 is the mark in the environment of every process that this Satchel started. stdin lists the leaders of process groups:
# "+PID" for one that starts, "-PID" for one that has ended together with everything that it started; and "=FOLDER", where the
# notes about boxed commands are. $2 and $3 are the interpreter and the pid of Satchel. Only Satchel holds the other end of the
# pipe, so the end of stdin means that Satchel has ended, for whatever reason.
trap '' HUP INT QUIT TERM
mark=$1
leaders=' '
notes=
while read -r line; do
    pid=${line#?}
    case $line in
        =*) notes=${line#?} ;;
        +*) leaders="$leaders$pid " ;;
        -*) case $leaders in *" $pid "*) leaders="${leaders%%" $pid "*} ${leaders#*" $pid "}" ;; esac ;;
    esac
done

# The pids of all running processes: in a leader's session or group, with the mark, and their descendants. Without /proc: the groups.
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
            sub(/.*\) /, "")    # the name may contain anything
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

# Processes get one second to exit in an orderly way, as after a time limit. Three empty looks are needed, because the environment
# of a process can't be read during execve. Processes that hang in the kernel are given up after half a minute.
looks=0
empty=0
while [ "$empty" -lt 3 ] && [ "$looks" -lt 300 ]; do
    pids=$(running)
    if [ -z "$pids" ]; then
        empty=$((empty + 1))
    elif [ "$looks" -eq 0 ]; then
        kill -s TERM -- $pids 2>/dev/null
        kill -s CONT -- $pids 2>/dev/null    # a stopped process receives SIGTERM only after it continues
    else
        empty=0
        [ "$looks" -lt 10 ] || kill -s KILL -- $pids 2>/dev/null
    fi
    looks=$((looks + 1))
    sleep 0.1 2>/dev/null || sleep 1
done

# What commands left that programs act upon by themselves is set aside now; the next Satchel tells it.
for file in "$notes/running-$3-"*; do
    [ -e "$file" ] && exec "$2" -I -m satchel.sandbox.aside "$notes" "$3"
done

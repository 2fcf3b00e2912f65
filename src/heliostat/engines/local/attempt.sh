#!/bin/sh
# Runs one attempt and leaves its trace on disk, so that it needs no server while it runs.
#
#   attempt.sh TRACE BOOT_ID LIMIT_SECONDS GRACE_SECONDS "CGROUP_FILES" exec PROGRAM...
#   attempt.sh TRACE BOOT_ID LIMIT_SECONDS GRACE_SECONDS "CGROUP_FILES" . SCRIPT
#
# TRACE.started    "pid start-time boot-id exit-status", the time in seconds since boot. Made with O_EXCL: whoever makes it (this script, or a server
#                  that gave the attempt up) decides whether the attempt ever runs. The exit status is written over
#                  dashes that are there from the start, so that a disk that has become full cannot swallow it.
# TRACE.timed_out  there when the time limit ended it.
# TRACE.limit      a longer limit in seconds since the start, from the server, who may write it at any time.
# TRACE.payload    the payload's pid; only without cgroups.
#
# Where descriptor 5 is open, another attempt runs in the place of this one: it holds the other end (its descriptor 6), and
# when it is gone it is this one's turn.
#
# The payload's script comes on descriptor 8, so that its secrets never touch the disk; those of a container on 7.
# With HELIOSTAT_CONTAINED, TERM is for what runs in the container, not for the tools that hold it.
#
# It stays outside the attempt's cgroup and, when the server is root, runs as root: the payload can neither starve
# nor kill it. It must not read anything the payload's user can write.

trace=$1 boot=$2 limit=$3 grace=$4 groups=$5 contained=$HELIOSTAT_CONTAINED
shift 5
exec 9>&2 2>/dev/null # the shell's own remarks ("Killed") do not belong into the job's log

members() { # of the cgroup and of those below it, which only a container makes
    top=${groups%% *}
    for file in "$top" "${top%/*}"/*/cgroup.procs "${top%/*}"/*/*/cgroup.procs; do
        [ ! -e "$file" ] || cat "$file"
    done
}

is_inside() { # has a number in the container too, and is not its first process, which only looks after the others
    while read -r word _ number; do
        if [ "$word" = NSpid: ]; then
            number=${number##*[!0-9]}
            [ "${number:-1}" != 1 ]
            return
        fi
    done <"/proc/$1/status"
    return 1
}

insiders() {
    for pid in $(members); do
        if is_inside "$pid"; then echo "$pid"; fi
    done
}

signal_all() { # without a cgroup: the process group, and the payload in case it left it
    if [ -n "$groups" ]; then
        targets=''
        [ -z "$contained" ] || [ "$1" = KILL ] || targets=$(insiders)
        for pid in ${targets:-$(members)}; do kill -s "$1" "$pid"; done
    else
        read -r payload <"$trace.payload"
        kill -s "$1" "$payload"
        kill -s "$1" -- "-$$"
    fi
}

seconds_since_boot() { # unlike the wall clock, nobody sets it
    read -r uptime _ </proc/uptime
    now=${uptime%.*}
}

watch_the_limit() {
    trap : TERM INT HUP QUIT USR1 USR2 # signals to the payload's process group reach us too
    seconds_since_boot
    begin=$now
    end=$((begin + limit))
    while [ "$now" -lt "$end" ]; do
        sleep $((end - now))
        seconds_since_boot
        if [ -e "$trace.limit" ]; then
            read -r limit <"$trace.limit"
            end=$((begin + limit))
        fi
    done
    true >"$trace.timed_out" # not ":": when the file cannot be made, that would end this shell
    signal_all TERM
    sleep "$grace"
    signal_all KILL
}

if [ -e /proc/self/fd/5 ]; then
    read -r _ <&5
    exec 5<&-
fi
seconds_since_boot
start_time=$uptime
set -C
echo "$$ $start_time $boot ---" >"$trace.started" || exit 0
set +C

trap : TERM INT HUP QUIT
[ "$limit" = 0 ] || watch_the_limit <&- >&- 6>&- 7<&- 8<&- 9>&- &

(
    for file in $groups; do echo 0 >"$file" || exit 125; done
    if [ -z "$groups" ]; then
        read -r pid _ </proc/self/stat
        echo "$pid" >"$trace.payload"
    fi
    exec 2>&9 9>&- 6>&-
    trap - TERM INT HUP QUIT
    "$@"
)
printf '%s %s %s %03d\n' $$ "$start_time" "$boot" $? 1<>"$trace.started"
[ "$limit" = 0 ] || kill -s KILL -- "-$$" # takes the watch and its sleep along

#!/bin/sh
# Runs one attempt and leaves its trace on disk, so that the attempt needs no server while it runs.
#
#   attempt.sh TRACE BOOT_ID LIMIT_SECONDS GRACE_SECONDS CONTAINED "CGROUP_FILES" exec PROGRAM...
#   attempt.sh TRACE BOOT_ID LIMIT_SECONDS GRACE_SECONDS CONTAINED "CGROUP_FILES" . SCRIPT
#
# TRACE.started    "pid start-time boot-id:birth exit-status": the start time in seconds since boot, the birth of this
#                  process in clock ticks since boot. Made with O_EXCL: whoever makes it (this script, or a server that
#                  gave the attempt up) decides whether the attempt ever runs. The exit status is written over dashes
#                  that are there from the start, so that a full disk cannot swallow it.
# TRACE.timed_out  there when the time limit ended the attempt.
# TRACE.limit      a longer limit in seconds since the start; the server may write it at any time.
# TRACE.payload    the payload's pid; only without cgroups.
#
# The payload's script comes on descriptor 8, so that its secrets never touch the disk; those of a container on 7.
# With CONTAINED ("yes"), TERM is for what runs inside the container, not for the tools that hold it.
#
# This process stays outside the attempt's cgroup and, when the server is root, runs as root: the payload can neither
# starve nor kill it. It must not read anything that the payload's user can write.

trace=$1 boot=$2 limit=$3 grace=$4 contained=$5 groups=$6
shift 6
exec 9>&2 2>/dev/null # the shell's own remarks ("Killed") do not belong in the job's log

members() { # of the cgroup and of those below it, which only a container makes
    first=${groups%% *}
    folder=${first%/*}
    for file in "$folder"/cgroup.procs "$folder"/*/cgroup.procs "$folder"/*/*/cgroup.procs; do
        [ ! -e "$file" ] || cat "$file"
    done
}

is_inside() { # has a pid in the container too, and is not its first process, which only looks after the others
    while read -r word _ number; do
        if [ "$word" = NSpid: ]; then
            number=${number##*[!0-9]}
            [ "${number:-1}" != 1 ]
            return
        fi
    done <"/proc/$1/status"
    return 1
}

inside() {
    for pid in $(members); do
        if is_inside "$pid"; then echo "$pid"; fi
    done
}

signal_all() { # without a cgroup: the process group, and the payload in case it left it
    if [ -n "$groups" ]; then
        targets=''
        [ -z "$contained" ] || [ "$1" = KILL ] || targets=$(inside)
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

enforce_limit() {
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

note_birth() { birth=${20}; } # no other process with this pid was born at this tick
read -r stat <"/proc/$$/stat"
note_birth ${stat##*) }
seconds_since_boot
claim="$$ $uptime $boot:$birth"
set -C
echo "$claim ---" >"$trace.started" || exit 0
set +C

# Signals to the payload's process group reach this process and the watch of the limit too. The watch ignores them
# from its first moment; this process has traps, which the payload's shell does not inherit.
trap '' TERM INT HUP QUIT USR1 USR2
if [ "$limit" != 0 ]; then enforce_limit <&- >&- 7<&- 8<&- 9>&- & fi
trap : TERM INT HUP QUIT USR1 USR2

(
    for file in $groups; do
        echo 0 >"$file" || {
            echo "heliostat: the job's control group cannot be entered" >&9
            exit 125
        }
    done
    if [ -z "$groups" ]; then
        read -r pid _ </proc/self/stat
        echo "$pid" >"$trace.payload"
    fi
    exec 2>&9 9>&-
    trap - TERM INT HUP QUIT USR1 USR2
    "$@"
)
printf '%s %03d\n' "$claim" $? 1<>"$trace.started"
[ "$limit" = 0 ] || kill -s KILL -- "-$$" # ends the watch of the limit and its sleep

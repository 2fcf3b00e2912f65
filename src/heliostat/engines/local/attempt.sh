#!/bin/sh
# Wrapper of an attempt: runs it and records its state on disk, so that the attempt needs no server while it runs.
#
#   attempt.sh TRACE BOOT_ID LIMIT_SECONDS GRACE_SECONDS CONTAINED "CGROUP_FILES" exec PROGRAM...
#   attempt.sh TRACE BOOT_ID LIMIT_SECONDS GRACE_SECONDS CONTAINED "CGROUP_FILES" . SCRIPT
#
# TRACE.started    "pid start-time boot-id:birth exit-status": the start time in seconds since boot, the birth of this
#                  process in clock ticks since boot. Created with O_EXCL: the process that creates it (this script, or a
#                  server that gave the attempt up) decides whether the attempt ever runs. The exit status overwrites
#                  dashes that are written at the start, so that it is recorded even if the disk is full.
# TRACE.timed_out  exists when the time limit ended the attempt.
# TRACE.limit      a longer limit in seconds since the start; the server may write it at any time.
# TRACE.payload    the payload's pid; only without cgroups.
#
# The payload's script is on descriptor 8, so that its secrets are never on disk; those of a container are on 7.
# With CONTAINED ("yes"), TERM is sent to the processes inside the container, not to the container tools.
#
# This process stays outside the attempt's cgroup and runs as root if the server does, so the payload can neither
# starve nor kill it. It must not read files that the payload's user can write.

trace=$1 boot=$2 limit=$3 grace=$4 contained=$5 groups=$6
shift 6
[ -z "$HELIOSTAT_OPEN_FILES" ] || ulimit -S -n "$HELIOSTAT_OPEN_FILES" # the server has raised its own limit
unset HELIOSTAT_OPEN_FILES
exec 9>&2 2>/dev/null # keep messages of the shell ("Killed") out of the job's log

members() { # pids in the cgroup and in those below it, which only container tools create
    first=${groups%% *}
    folder=${first%/*}
    for file in "$folder"/cgroup.procs "$folder"/*/cgroup.procs "$folder"/*/*/cgroup.procs; do
        [ ! -e "$file" ] || cat "$file"
    done
}

is_inside() { # has a pid in the container too, and is not its init process
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

signal_all() { # without a cgroup: the process group, and the payload in case it left the group
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

seconds_since_boot() { # unlike the wall clock, it is never set back
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
    true >"$trace.timed_out" # not ":", which would end this shell if the file cannot be created
    signal_all TERM
    sleep "$grace"
    signal_all KILL
}

note_birth() { birth=${20}; } # start time in ticks; with the pid it is unique
read -r stat <"/proc/$$/stat"
note_birth ${stat##*) }
seconds_since_boot
claim="$$ $uptime $boot:$birth"
set -C
echo "$claim ---" >"$trace.started" || exit 0
set +C

# Signals to the payload's process group also reach this process and the one that enforces the limit. The latter ignores
# them from its start; this process has traps, which the payload's shell does not inherit.
trap '' TERM INT HUP QUIT USR1 USR2
if [ "$limit" != 0 ]; then enforce_limit <&- >&- 7<&- 8<&- 9>&- & fi
trap : TERM INT HUP QUIT USR1 USR2

(
    for file in $groups; do
        echo 0 >"$file" || {
            echo "heliostat: cannot enter the job's cgroup" >&9
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
[ "$limit" = 0 ] || kill -s KILL -- "-$$" # ends the process that enforces the limit, and its sleep

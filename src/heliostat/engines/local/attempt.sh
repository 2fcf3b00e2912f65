#!/bin/sh
# Runs attempts one after the other and leaves the trace of each on disk, so that none needs a server while it runs.
#
#   attempt.sh BOOT_ID SERVER_PID TRACES JOBS MARK "CGROUPS" "QUIET"
#
# Descriptor 5 leads to the server, which sends a line for each attempt, numbers only ("-": none):
#
#   ATTEMPT GROUP SCRIPT [LIMIT_SECONDS GRACE_SECONDS UID GID SEALED]
#
# and hears the attempt's name and exit status when it is over. UID and GID are those of another user. SCRIPT is NUMBER/FILE
# and SEALED a file, both descriptors of the server: a function `heliostat_payload`, which takes the numbers of job and attempt,
# and what only its container may see. Their secrets never touch the disk. The same script comes again for attempts that are
# alike: a function of our own user stays known until another comes. When the server is gone or hangs up, the attempt that
# runs or is just beginning is the last one.
#
# Attempts may share a GROUP, one after the other. QUIET are files of a group, as FOLDER//FILE, that hold nothing but zeros
# while nothing is in it and nothing in it was killed for want of memory. When an attempt leaves its group otherwise, it
# was the last one here: the server clears up. Without QUIET nobody knows, and no group is shared.
#
# TRACES/ATTEMPT.started    "pid start-time boot-id:birth group exit-status", the time in seconds since boot, the birth of
#                           this process in ticks. Made with O_EXCL: whoever makes it (this script, or a server that
#                           gave the attempt up) decides whether the attempt ever runs. The exit status is written over
#                           dashes that are there from the start, so that a full disk cannot swallow it; a "+" behind it
#                           says that the group was left quiet, and may be another's by now.
# TRACES/ATTEMPT.timed_out  there when the time limit ended it.
# TRACES/ATTEMPT.limit      a longer limit in seconds since the start, from the server, who may write it at any time.
# TRACES/ATTEMPT.payload    the payload's pid; only without cgroups.
#
# In a container TERM is for what runs inside, not for the tools that hold it.
#
# It stays outside the attempts' cgroups and, when the server is root, runs as root: a payload can neither starve
# nor kill it. It must not read anything the payload's user can write.

boot=$1 server=$2 traces=$3 jobs=$4 mark=$5 cgroups=$6 quiet=$7
exec >/dev/null 2>&1 # the shell's own remarks ("Killed") do not belong into anybody's log
heed_signals() { # those to the payload's process group reach us too
    trap 'signalled=yes' TERM INT HUP QUIT USR1 USR2
}
heed_signals
read -r stat </proc/$$/stat
set -- ${stat##*) }
boot=$boot:${20} # when this process was born: no other with its number was

members() { # of the cgroup and of those below it, which only a container makes
    top=${cgroups%% *}/$group
    for file in "$top/cgroup.procs" "$top"/*/cgroup.procs "$top"/*/*/cgroup.procs; do
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
    if [ -n "$cgroups" ]; then
        targets=''
        [ "$sealed" = - ] || [ "$1" = KILL ] || targets=$(insiders)
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

pause() { # the mark is for a server that finds us without our wrapper; a signal to the process group ends it early
    HELIOSTAT_MARK=$mark-$name sleep "$1" &
    sleeper=$!
    [ -z "$over" ] || leave
    wait "$sleeper" || kill -s KILL "$sleeper"
    sleeper=''
}

leave() {
    [ -z "$sleeper" ] || kill -s KILL "$sleeper"
    exit 0
}

watch_the_limit() {
    sleeper='' over=''
    trap : TERM INT HUP QUIT USR1 USR2
    trap 'over=yes; [ -z "$sleeper" ] || leave' VTALRM # from our wrapper; while a sleep begins, that comes to its end
    seconds_since_boot
    begin=$now
    end=$((begin + limit))
    while [ "$now" -lt "$end" ]; do
        pause $((end - now))
        seconds_since_boot
        if [ -e "$trace.limit" ]; then
            read -r limit <"$trace.limit"
            end=$((begin + limit))
        fi
    done
    [ -z "$over" ] || leave
    true >"$trace.timed_out" # not ":": when the file cannot be made, that would end this shell
    signal_all TERM
    pause "$grace"
    signal_all KILL
}

end_the_watch() { # a group that others may use next is signalled by nobody then
    kill -s VTALRM "$watch"
    kill -s CONT "$watch" # a payload of our own user may have stopped it
    signalled=yes
    while [ -n "$signalled" ]; do # a signal ends the waiting too early
        signalled=''
        wait "$watch"
    done
}

counted() {
    seen=yes
    [ "$1" = 0 ] || loud=yes
}

# What the kernel says of a group, a word and a number in each line, is run as a script: `read` would take it byte by byte,
# which takes a tenth of the time of a small job. Of cgroup.stat only what is below the group counts.
for word in populated frozen nr_descendants low high max oom oom_kill oom_group_kill oom_kill_disable under_oom; do
    eval "$word() { counted \"\$1\"; }"
done

is_quiet() {
    loud='' path=$PATH
    PATH=/dev/null # other words do nothing: they are no programs
    for file in $quiet; do
        seen='' place=${file%//*}/$group/${file#*//}
        case $file in
            *.current) read -r count <"$place" && counted "$count" ;;
            *) command . "$place" ;;
        esac
        [ -n "$seen" ] || loud=yes
    done
    PATH=$path
    [ -z "$loud" ] && [ -n "$quiet" ]
}

payload() {
    for cgroup in $cgroups; do echo 0 >"$cgroup/$group/cgroup.procs" || exit 125; done
    if [ -z "$cgroups" ]; then
        read -r pid _ </proc/self/stat
        echo "$pid" >"$trace.payload"
    fi
    logs=$jobs/${name%.*}/${name#*.}
    exec >>"$logs.stdout" 2>>"$logs.stderr" 5<&-
    trap - TERM INT HUP QUIT USR1 USR2
    if [ "$uid" = - ]; then
        heliostat_payload "${name%.*}" "${name#*.}" # in our own fork: one program less to start
        exit
    fi
    exec /usr/bin/setpriv --reuid="$uid" --regid="$gid" --init-groups --inh-caps=-all \
        /bin/sh -c '. /proc/self/fd/8; heliostat_payload "$@"' sh "${name%.*}" "${name#*.}"
}

attempt() {
    trace=$traces/$name
    seconds_since_boot
    start_time=$uptime
    set -C
    if ! echo "$$ $start_time $boot $group ----" >"$trace.started"; then
        set +C
        return
    fi
    set +C
    if [ "$uid" = - ] && [ "$script" != "$known" ]; then
        known=''
        unset -f heliostat_payload
        command . /proc/self/fd/8 && known=$script # only now: whose attempt was given up may name any file
    fi
    if [ "$limit" != 0 ]; then
        trap '' TERM INT HUP QUIT USR1 USR2 # it begins deaf: a payload must not end it before it has its own traps
        watch_the_limit <&- 5<&- 7<&- 8<&- &
        watch=$!
        heed_signals
    fi
    (payload)
    status=$?
    [ "$limit" = 0 ] || end_the_watch
    {
        printf '%s %s %s %s %03d' $$ "$start_time" "$boot" "$group" "$status"
        if is_quiet; then # looked at only now: whoever enters the group reads the status after that
            left=+
            printf +
        fi
    } 1<>"$trace.started"
    [ "$left" = + ] || [ -z "$quiet" ] || exit
}

run() { # nothing, where the script cannot be opened any more
    if [ "$uid" = - ] && [ "$script" = "$known" ]; then
        attempt
    else
        attempt 8<"/proc/$server/fd/${script#*/}"
    fi
}

known=''
while read -r name group script limit grace uid gid sealed <&5; do
    status=- left=-
    [ -n "$limit" ] || limit=0 uid=- sealed=- # short, as most are: it is read byte by byte
    case $sealed in
        -) run ;;
        *) run 7<"/proc/$server/fd/$sealed" ;;
    esac
    echo "$name $status$left" >&5
done

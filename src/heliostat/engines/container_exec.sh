# Runs another command in a running container (helio exec): as its user, in the cgroup of the caller. The engine puts
# this text into a script, after a line that sets the arguments:
#
#   set -- RUNTIME FOLDER ROOT FIRST TOKEN TERMINAL WORKDIR COMMAND...
#
# FOLDER is the runtime folder of the container tool, ROOT podman's store; FIRST is the first process inside the
# container, or an ancestor of it outside. The command gets the environment variables of the container.

heliostat_fail() {
    echo "heliostat: $1" >&2
    exit 125
}

# bubblewrap creates two nested user namespaces. The outer one owns all other namespaces, but no process is left in it.
heliostat_enter='
import fcntl, os, sys
first, command = sys.argv[1], sys.argv[2:]
def space(kind, pid=first):
    return os.stat("/proc/%s/ns/%s" % (pid, kind)).st_ino
owner = fcntl.ioctl(os.open("/proc/%s/ns/mnt" % first, os.O_RDONLY), 0xB701)  # NS_GET_USERNS
os.dup2(owner, 6)
kinds = {"mnt": "mount", "pid": "pid", "ipc": "ipc", "uts": "uts", "cgroup": "cgroup", "net": "net"}
others = ["--" + word for kind, word in kinds.items() if space(kind) != space(kind, "self")]
nested = ["nsenter", "--target", "1", "--user", "--preserve-credentials", "--"]
same = space("user") == os.fstat(owner).st_ino
words = ["nsenter", "--user=/proc/self/fd/6", "--target", first, "--preserve-credentials", *others, "--"]
os.execvp("nsenter", words + ([] if same else nested) + command)
'

heliostat_child() { # process $1, or its first descendant that is in a container
    heliostat_pid=$1
    while [ "$(readlink "/proc/$heliostat_pid/ns/pid")" = "$(readlink /proc/self/ns/pid)" ]; do
        read -r heliostat_pid _ <"/proc/$heliostat_pid/task/$heliostat_pid/children"
        [ -n "$heliostat_pid" ] || return
    done
    echo "$heliostat_pid"
}

heliostat_children() { cat "/proc/$1/task/$1/children"; }

# The environment variables of process $1 as export lines. Only the command gets them, not the tools that run before it.
heliostat_variables() {
    LC_ALL=C sed -zn "/^[A-Za-z_][A-Za-z0-9_]*=/{s/'/'\\\\''/g;s/=/='/;s/\$/'/;s/^/export /;p}" "/proc/$1/environ" | tr '\0' '\n'
}

heliostat_bubblewrap() { # first, folder, workdir, command
    heliostat_first=$(heliostat_child "$1") heliostat_text=$2/inside.$$
    heliostat_main=$(heliostat_children "$heliostat_first")
    [ -n "$heliostat_main" ] || heliostat_fail "no process runs in the container"
    command -v python3 >/dev/null || heliostat_fail "python3 is not installed on this node; it is needed to enter a bubblewrap container"
    umask 077
    {
        echo "exec 5<&- 6<&-"
        heliostat_variables "${heliostat_main%% *}"
        [ -z "$heliostat_terminal" ] || echo "export TERM=$heliostat_terminal"
        echo 'cd -- "$1" || exit 126'
        echo 'shift'
        echo 'exec "$@"'
    } >"$heliostat_text" || heliostat_fail "cannot write $heliostat_text"
    exec 5<"$heliostat_text"
    rm -f -- "$heliostat_text"
    umask 022
    shift 2
    exec env -i PATH="$PATH" setpriv --no-new-privs python3 -I -c "$heliostat_enter" "$heliostat_first" \
        /bin/sh /proc/self/fd/5 "$@"
}

# Killing `podman exec` does not kill the processes that it started inside. They and their children carry the token.
heliostat_stop='
signal=$2
for tries in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    for file in $(grep -lszxF -- "HELIOSTAT_INSIDE=$1" /proc/[0-9]*/environ); do
        file=${file#/proc/}
        kill -s "$signal" "${file%/*}"
    done
    [ "$tries" != 15 ] || signal=KILL
    [ "$signal" = KILL ] || signal=0
    sleep 0.1
done
'

# Whether the command itself still runs: it is a child of podman's monitor (conmon); processes that it left behind are not.
heliostat_is_running() {
    for heliostat_file in $(grep -lszxF -- "HELIOSTAT_INSIDE=$heliostat_token" /proc/[0-9]*/environ); do
        heliostat_pid=$(sed -n 's/^PPid:[[:space:]]*//p' "${heliostat_file%/environ}/status" 2>/dev/null)
        [ "$(cat "/proc/$heliostat_pid/comm" 2>/dev/null)" != conmon ] || return 0
    done
    return 1
}

heliostat_end() {
    trap '' TERM INT HUP
    /bin/sh -c "$heliostat_stop" stop "$heliostat_token" TERM >/dev/null 2>&1
    rm -f -- "$heliostat_guarded" # last: if Slurm kills this shell before, the guard still cleans up
    exit 143
}

heliostat_podman() { # folder, root, token, workdir, command
    for heliostat_file in "$1"/c/overlay-containers/*/userdata/pidfile; do
        [ ! -s "$heliostat_file" ] || break
    done
    [ -s "$heliostat_file" ] || heliostat_fail "no process runs in the container"
    heliostat_file=${heliostat_file%/userdata/pidfile} heliostat_folder=$1 heliostat_root=$2 heliostat_token=$3 heliostat_dir=$4
    shift 4
    export XDG_RUNTIME_DIR="$heliostat_folder"
    heliostat_guarded=$heliostat_folder/inside.$heliostat_token
    exec 5<&0 9>"$heliostat_guarded"
    flock 9
    (setsid flock "$heliostat_guarded" /bin/sh -c '[ ! -e "$1" ] || { rm -f -- "$1"; exec /bin/sh -c "$2" stop "$3" KILL; }' \
        guard "$heliostat_guarded" "$heliostat_stop" "$heliostat_token" 5<&- 9>&- </dev/null >/dev/null 2>&1 &)
    trap heliostat_end TERM INT HUP
    podman --root="$heliostat_root" --runroot="$heliostat_folder/c" --tmpdir="$heliostat_folder/t" --storage-driver=overlay \
        --cgroup-manager=cgroupfs --events-backend=none --log-level=error exec --interactive ${heliostat_terminal:+--tty "--env=TERM=$heliostat_terminal"} \
        --env="HELIOSTAT_INSIDE=$heliostat_token" --workdir="$heliostat_dir" -- "${heliostat_file##*/}" "$@" <&5 5<&- 9>&- &
    exec 5<&- </dev/null
    heliostat_tool=$!
    while :; do
        wait "$heliostat_tool"
        code=$?
        if [ "$code" -le 128 ] || ! kill -s 0 "$heliostat_tool" 2>/dev/null; then break; fi
    done
    # A signal to the process group may have ended podman, which then exits with 0, before this shell handles it.
    if heliostat_is_running; then
        /bin/sh -c "$heliostat_stop" stop "$heliostat_token" KILL >/dev/null 2>&1
        [ "$code" -gt 128 ] || code=143
    fi
    rm -f -- "$heliostat_guarded"
    exit "$code"
}

heliostat_runtime=$1
shift
case $heliostat_runtime in
bubblewrap)
    heliostat_first=$3 heliostat_folder=$1 heliostat_terminal=$5
    shift 5
    heliostat_bubblewrap "$heliostat_first" "$heliostat_folder" "$@"
    ;;
*)
    heliostat_folder=$1 heliostat_root=$2 heliostat_token=$4 heliostat_terminal=$5
    shift 5
    heliostat_podman "$heliostat_folder" "$heliostat_root" "$heliostat_token" "$@"
    ;;
esac

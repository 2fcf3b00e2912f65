exec 8<&-
umask 022
export HOME=/home/ann USER=ann LOGNAME=ann SHELL=/bin/bash PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/var/lib/heliostat/bin PYTHONPATH=/var/lib/heliostat/bin/python LANG=C.UTF-8 HELIOSTAT_HOME=/var/lib/heliostat HELIOSTAT_JOB_ID=12 HELIOSTAT_JOB_NAME=train HELIOSTAT_PROJECT=vision HELIOSTAT_ATTEMPT=1 HELIOSTAT_ATTEMPT_ID=12.1 HELIOSTAT_MARK=ab12-12.1 HELIOSTAT_NODE=gpu-1 HELIOSTAT_CPUS=2 HELIOSTAT_MEMORY_MIB=4096 HELIOSTAT_GPUS=0 HELIOSTAT_CHECKPOINT_DIR=/var/lib/heliostat/jobs/12/checkpoints HELIOSTAT_CHECKPOINT_FILE=/var/lib/heliostat/jobs/12/checkpoints/saved CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES='' NVIDIA_VISIBLE_DEVICES=void OMP_NUM_THREADS=2 HELIOSTAT_TASKS=2 HELIOSTAT_TASK_COUNT=2 HELIOSTAT_TASK_HOSTS=localhost,localhost WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=20012
cd -- / || {
    echo 'heliostat: the working directory cannot be entered' >&2
    exit 126
}
heliostat_tasks=2 heliostat_grace=10.0
heliostat_task() {
    case $1 in
    0) export CUDA_VISIBLE_DEVICES=''; export NVIDIA_VISIBLE_DEVICES=void; export HELIOSTAT_TASK=0; export HELIOSTAT_TASK_INDEX=0; export RANK=0; export LOCAL_RANK=0 ;;
    1) export CUDA_VISIBLE_DEVICES=''; export NVIDIA_VISIBLE_DEVICES=void; export HELIOSTAT_TASK=1; export HELIOSTAT_TASK_INDEX=1; export RANK=1; export LOCAL_RANK=1 ;;
    esac
    exec /bin/sh -c '# Runs in each task: a Spark cluster for this job. Task 0 runs the master and the command, which finds the cluster by
# spark-defaults.conf; the other tasks are workers, and end when that file is gone. With one task, Spark runs in local mode.
# That file holds the shared secret and only its user can read it. The REST server and the web interface, which would
# accept commands without the secret, are off.
heliostat_conf="$HELIOSTAT_CHECKPOINT_DIR/.spark.$HELIOSTAT_ATTEMPT.${SLURM_RESTART_COUNT:-0}"
heliostat_file="$heliostat_conf/spark-defaults.conf"
heliostat_tasks=${HELIOSTAT_TASK_COUNT:-1}
if [ -z "${SPARK_HOME:-}" ]; then
    heliostat_spark=$(python3 -c '"'"'import os, pyspark; print(os.path.dirname(pyspark.__file__))'"'"' 2>/dev/null) || {
        echo '"'"'heliostat: Spark is not installed here; set SPARK_HOME, or use an environment with pyspark'"'"' >&2
        exit 127
    }
else
    heliostat_spark=$SPARK_HOME
fi
heliostat_class() { exec "$heliostat_spark/bin/spark-class" "org.apache.spark.deploy.$@"; }

# Of the task'"'"'s memory, the JVM and the daemon need 512 MiB, and Python and caches 30% of the rest.
heliostat_heap=$(((HELIOSTAT_MEMORY_MIB - 512) * 7 / 10))
[ "$heliostat_heap" -ge 512 ] || heliostat_heap=512
export SPARK_DAEMON_MEMORY="${SPARK_DAEMON_MEMORY:-256m}"
[ "${MASTER_ADDR:-127.0.0.1}" != 127.0.0.1 ] || export SPARK_LOCAL_IP=127.0.0.1

heliostat_settings() {
    cat "${SPARK_CONF_DIR:-$heliostat_spark/conf}/spark-defaults.conf" 2>/dev/null # the lines below override it
    echo
    if [ "$heliostat_tasks" = 1 ]; then
        echo "spark.master local[$HELIOSTAT_CPUS]"
    else
        echo "spark.master spark://$MASTER_ADDR:$MASTER_PORT"
    fi
    echo '"'"'spark.authenticate true'"'"'
    echo "spark.authenticate.secret $(od -An -tx1 -N32 /dev/urandom | tr -d '"'"' \n'"'"')"
    echo '"'"'spark.network.crypto.enabled true'"'"'
    echo '"'"'spark.master.rest.enabled false'"'"'
    echo '"'"'spark.ui.enabled false'"'"'
    echo '"'"'spark.ui.killEnabled false'"'"'
    echo '"'"'spark.ui.port 0'"'"'
    echo '"'"'spark.port.maxRetries 0'"'"'
    echo "spark.driver.memory ${heliostat_heap}m"
    echo "spark.executor.memory ${heliostat_heap}m"
}

# Runs "$@" in the background while the function $1 succeeds, and forwards signals to it. Sets `heliostat_code` to the exit code.
heliostat_watch() {
    heliostat_while=$1
    shift
    "$@" &
    heliostat_pid=$!
    trap '"'"'kill -s TERM "$heliostat_pid" 2>/dev/null'"'"' TERM INT HUP QUIT
    for heliostat_name in USR1 USR2; do
        trap "kill -s $heliostat_name \"\$heliostat_pid\" 2>/dev/null" "$heliostat_name"
    done
    while kill -s 0 "$heliostat_pid" 2>/dev/null; do
        if ! "$heliostat_while"; then
            kill -s TERM "$heliostat_pid" 2>/dev/null
            wait "$heliostat_pid"
            heliostat_code=stopped
            return
        fi
        sleep 0.3
    done
    wait "$heliostat_pid"
    heliostat_code=$?
}

heliostat_has_master() { [ "$heliostat_tasks" = 1 ] || kill -s 0 "$heliostat_master" 2>/dev/null; }
heliostat_has_cluster() { [ -e "$heliostat_file" ]; }

if [ "${HELIOSTAT_TASK_INDEX:-0}" != 0 ]; then
    until heliostat_has_cluster; do sleep 0.3; done # when task 0 fails, this one is stopped too
    heliostat_work=$(mktemp -d "${TMPDIR:-/tmp}/spark.XXXXXX") || exit 126
    trap '"'"'rm -rf "$heliostat_work"'"'"' EXIT
    export SPARK_LOCAL_DIRS="${SPARK_LOCAL_DIRS:-$heliostat_work}"
    heliostat_watch heliostat_has_cluster heliostat_class worker.Worker --host "${SPARK_LOCAL_IP:-$HELIOSTAT_NODE}" \
        --webui-port 0 --cores "$HELIOSTAT_CPUS" --memory "${heliostat_heap}m" --work-dir "$heliostat_work" \
        --properties-file "$heliostat_file" "spark://$MASTER_ADDR:$MASTER_PORT"
    [ "$heliostat_code" != stopped ] || exit 0
    exit "$heliostat_code"
fi

rm -rf "$heliostat_conf"
mkdir -m 700 "$heliostat_conf" || exit 126
trap '"'"'rm -rf "$heliostat_conf"'"'"' EXIT
(umask 077 && heliostat_settings >"$heliostat_file.new") && mv "$heliostat_file.new" "$heliostat_file" || exit 126
export SPARK_CONF_DIR="$heliostat_conf"
if [ "$heliostat_tasks" != 1 ]; then
    (heliostat_class master.Master --host "$MASTER_ADDR" --port "$MASTER_PORT" --webui-port 0 \
        --properties-file "$heliostat_file") &
    heliostat_master=$!
fi
heliostat_watch heliostat_has_master "$@"
if [ "$heliostat_code" = stopped ]; then
    echo '"'"'heliostat: the master of the Spark cluster has ended'"'"' >&2
    heliostat_code=1
fi
[ "$heliostat_tasks" = 1 ] || kill -s TERM "$heliostat_master" 2>/dev/null
exit "$heliostat_code"' spark python count.py --lr '1 $x'
}
# Runs the tasks of one attempt in parallel. In the payload's script, this text comes after the lines that define them:
#
#   heliostat_tasks=2 heliostat_grace=10.0
#   heliostat_task() { … }   becomes task $1
#
# and before the pipeline that starts them. Each task sends its pid to the watch, waits for a byte that starts it, and sends its
# exit status. A task that is signalled before that byte never starts; one that has started gets each signal once.
# When a task fails, the others get TERM and, after the grace, KILL; the exit status of all is that of the first failure.
# A pipeline is used instead of `&`, because a shell makes background processes ignore INT and QUIT.

heliostat_run() {
    trap : TERM INT HUP QUIT USR1 USR2 # for the task; this shell stays to report its exit status
    (
        read -r heliostat_pid _ </proc/self/stat
        echo "pid $heliostat_pid" >&3
        read -r _ <&6
        exec 3>&- </dev/null >&4 2>&5 4>&- 5>&- 6>&-
        heliostat_task "$1"
    )
    echo "exit $?" >&3
}

heliostat_stop_the_others() {
    [ -z "$heliostat_signal" ] || return # the sender has signalled the tasks too, and kills those left
    kill -s TERM $heliostat_pids
    {
        sleep "$heliostat_grace"
        kill -s KILL $heliostat_pids
    } <&- >&- 4>&- 5>&- &
    heliostat_timer=$!
}

heliostat_watch() {
    heliostat_signal='' heliostat_signalled='' heliostat_pids='' heliostat_timer='' heliostat_failed=0
    heliostat_unknown=$heliostat_tasks # number of tasks whose pid is unknown
    for heliostat_name in TERM INT HUP QUIT USR1 USR2; do
        trap "heliostat_signal=$heliostat_name heliostat_signalled=1" "$heliostat_name"
    done
    while [ "$heliostat_tasks" -gt 0 ]; do
        if ! read -r heliostat_word heliostat_number; then
            [ -n "$heliostat_signalled" ] || break # all tasks have ended
            heliostat_signalled=''                 # read was interrupted by a signal
            continue
        fi
        if [ "$heliostat_word" = pid ]; then
            heliostat_pids="$heliostat_pids $heliostat_number"
            heliostat_unknown=$((heliostat_unknown - 1))
            if [ -n "$heliostat_signal" ] || [ "$heliostat_failed" != 0 ]; then
                kill -s TERM $heliostat_pids # they wait for a byte that is never sent
            elif [ "$heliostat_unknown" = 0 ]; then
                for _ in $heliostat_pids; do echo; done >&6 # one byte for each task: two may read at the same time
            fi
            continue
        fi
        [ "$heliostat_unknown" = 0 ] || kill -s TERM $heliostat_pids # this task ended before its start, so stop all
        heliostat_tasks=$((heliostat_tasks - 1))
        if [ "$heliostat_number" != 0 ] && [ "$heliostat_failed" = 0 ]; then
            heliostat_failed=$heliostat_number
            heliostat_stop_the_others
        fi
    done
    [ -z "$heliostat_timer" ] || kill -s KILL "$heliostat_timer"
    [ "$heliostat_tasks" = 0 ] || [ "$heliostat_failed" != 0 ] || heliostat_failed=137
    exit "$heliostat_failed"
}

trap : TERM INT HUP QUIT USR1 USR2
exec 4>&1 5>&2 2>/dev/null # keep messages of the shell ("Killed") out of the job's log
: | { trap : TERM INT HUP QUIT USR1 USR2
exec 6<>/proc/self/fd/0 </dev/null
{ trap : TERM INT HUP QUIT USR1 USR2; heliostat_run 0 | heliostat_run 1; } 3>&1 >&4 | heliostat_watch
}

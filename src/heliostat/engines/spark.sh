# Runs in each task: a Spark cluster for this job. Task 0 runs the master and the command, which finds the cluster by
# spark-defaults.conf; the other tasks are workers, and end when that file is gone. With one task, Spark runs in local mode.
# That file holds the shared secret and only its user can read it. The REST server and the web interface, which would
# accept commands without the secret, are off.
heliostat_conf="$HELIOSTAT_CHECKPOINT_DIR/.spark.$HELIOSTAT_ATTEMPT.${SLURM_RESTART_COUNT:-0}"
heliostat_file="$heliostat_conf/spark-defaults.conf"
heliostat_tasks=${HELIOSTAT_TASK_COUNT:-1}
if [ -z "${SPARK_HOME:-}" ]; then
    heliostat_spark=$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))' 2>/dev/null) || {
        echo 'heliostat: Spark is not installed here; set SPARK_HOME, or use an environment with pyspark' >&2
        exit 127
    }
else
    heliostat_spark=$SPARK_HOME
fi
heliostat_class() { exec "$heliostat_spark/bin/spark-class" "org.apache.spark.deploy.$@"; }

# Of the task's memory, the JVM and the daemon need 512 MiB, and Python and caches 30% of the rest.
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
    echo 'spark.authenticate true'
    echo "spark.authenticate.secret $(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')"
    echo 'spark.network.crypto.enabled true'
    echo 'spark.master.rest.enabled false'
    echo 'spark.ui.enabled false'
    echo 'spark.ui.killEnabled false'
    echo 'spark.ui.port 0'
    echo 'spark.port.maxRetries 0'
    echo "spark.driver.memory ${heliostat_heap}m"
    echo "spark.executor.memory ${heliostat_heap}m"
}

# Runs "$@" in the background while the function $1 succeeds, and forwards signals to it. Sets `heliostat_code` to the exit code.
heliostat_watch() {
    heliostat_while=$1
    shift
    "$@" &
    heliostat_pid=$!
    trap 'kill -s TERM "$heliostat_pid" 2>/dev/null' TERM INT HUP QUIT
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
    trap 'rm -rf "$heliostat_work"' EXIT
    export SPARK_LOCAL_DIRS="${SPARK_LOCAL_DIRS:-$heliostat_work}"
    heliostat_watch heliostat_has_cluster heliostat_class worker.Worker --host "${SPARK_LOCAL_IP:-$HELIOSTAT_NODE}" \
        --webui-port 0 --cores "$HELIOSTAT_CPUS" --memory "${heliostat_heap}m" --work-dir "$heliostat_work" \
        --properties-file "$heliostat_file" "spark://$MASTER_ADDR:$MASTER_PORT"
    [ "$heliostat_code" != stopped ] || exit 0
    exit "$heliostat_code"
fi

rm -rf "$heliostat_conf"
mkdir -m 700 "$heliostat_conf" || exit 126
trap 'rm -rf "$heliostat_conf"' EXIT
(umask 077 && heliostat_settings >"$heliostat_file.new") && mv "$heliostat_file.new" "$heliostat_file" || exit 126
export SPARK_CONF_DIR="$heliostat_conf"
if [ "$heliostat_tasks" != 1 ]; then
    (heliostat_class master.Master --host "$MASTER_ADDR" --port "$MASTER_PORT" --webui-port 0 \
        --properties-file "$heliostat_file") &
    heliostat_master=$!
fi
heliostat_watch heliostat_has_master "$@"
if [ "$heliostat_code" = stopped ]; then
    echo 'heliostat: the master of the Spark cluster has ended' >&2
    heliostat_code=1
fi
[ "$heliostat_tasks" = 1 ] || kill -s TERM "$heliostat_master" 2>/dev/null
exit "$heliostat_code"

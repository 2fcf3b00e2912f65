exec 8<&-
umask 022
export HOME=/home/ann USER=ann LOGNAME=ann SHELL=/bin/bash PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/var/lib/heliostat/bin PYTHONPATH=/var/lib/heliostat/bin/python LANG=C.UTF-8 HELIOSTAT_HOME=/var/lib/heliostat HELIOSTAT_JOB_ID=12 HELIOSTAT_JOB_NAME=train HELIOSTAT_PROJECT=vision HELIOSTAT_ATTEMPT=1 HELIOSTAT_ATTEMPT_ID=12.1 HELIOSTAT_MARK=ab12-12.1 HELIOSTAT_NODE=gpu-1 HELIOSTAT_CPUS=2 HELIOSTAT_MEMORY_MIB=4096 HELIOSTAT_GPUS=0 HELIOSTAT_CHECKPOINT_DIR=/var/lib/heliostat/jobs/12/checkpoints HELIOSTAT_CHECKPOINT_FILE=/var/lib/heliostat/jobs/12/checkpoints/saved CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES='' NVIDIA_VISIBLE_DEVICES=void OMP_NUM_THREADS=2
cd -- / || {
    echo 'heliostat: the working directory cannot be entered' >&2
    exit 126
}
exec /var/lib/heliostat/jobs/12/1.script --epochs 3 'two words'

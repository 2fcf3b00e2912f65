/* A stand-in for libnvidia-ml.so.1: only what Heliostat calls.
 *
 * The file named by FAKE_NVML_STATE is read again at each call, so a test changes what a running process sees.
 * Lines are key=value. Keys of device N start with "N.", of its MIG slice M with "N:M.". What is not mentioned, the GPU
 * does not support.
 *
 *   count=2                      devices listed
 *   hang=1                       every call waits until the line is gone
 *   nvmlInitWithFlags=18         this function returns that error
 *   0.nvmlDeviceGetName=999      the same for one device
 *   0.error=15                   every call on the device returns that error (15: the GPU is lost)
 *   0.uuid=GPU-0  0.name=NVIDIA A100-SXM4-80GB  0.memory_mib=81920  0.memory_used_mib=5
 *   0.utilisation=97  0.temperature=60  0.ecc=1  0.remap_pending=1  0.remap_failed=1  0.pages_pending=1
 *   0.throttle=64  0.milliwatts=250000  0.millijoules=5000000  0.pci=59     the bus
 *   0.minor=0  0.processes=123:5000 124:10     pid:MiB
 *   0.mig=1  0:2.uuid=MIG-2  0:2.name=NVIDIA A100-SXM4-80GB MIG 1g.10gb  0:2.gpu_instance=9  0:2.compute_instance=0
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { MAX_SLICES = 7, SLICE_SHIFT = 16 }; /* a handle is the device + 1, and the slice + 1 above these bits */

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

typedef struct { char legacy[16]; unsigned domain, bus, slot, id, subsystem; char text[32]; } PciInfo;

static int lookup(const char *key, char *value, size_t size) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096];
    size_t length = strlen(key);
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static int number(const char *key, unsigned long long *value) {
    char text[64];
    if (!lookup(key, text, sizeof text)) return 0;
    *value = strtoull(text, NULL, 10);
    return 1;
}

static int device_text(void *device, const char *field, char *value, size_t size) {
    char key[128];
    unsigned index = ((uintptr_t)device & ((1u << SLICE_SHIFT) - 1)) - 1, slice = (uintptr_t)device >> SLICE_SHIFT;
    if (slice) snprintf(key, sizeof key, "%u:%u.%s", index, slice - 1, field);
    else snprintf(key, sizeof key, "%u.%s", index, field);
    return lookup(key, value, size);
}

static int device_number(void *device, const char *field, unsigned long long *value) {
    char text[64];
    if (!device_text(device, field, text, sizeof text)) return 0;
    *value = strtoull(text, NULL, 10);
    return 1;
}

static int planned_error(const char *function) {
    unsigned long long code = 0;
    char text[8];
    while (lookup("hang", text, sizeof text)) usleep(10000);
    return number(function, &code) ? (int)code : SUCCESS;
}

static int planned_device_error(void *device, const char *function) {
    unsigned long long code = planned_error(function);
    if (code) return (int)code;
    if (device_number(device, "error", &code)) return (int)code;
    return device_number(device, function, &code) ? (int)code : SUCCESS;
}

#define FAIL_AS_PLANNED() \
    do { int code_ = planned_error(__func__); if (code_) return code_; } while (0)
#define FAIL_AS_PLANNED_FOR(device) \
    do { int code_ = planned_device_error(device, __func__); if (code_) return code_; } while (0)

static int text_answer(void *device, const char *field, char *value, unsigned size) {
    return device_text(device, field, value, size) ? SUCCESS : NOT_SUPPORTED;
}

static int number_answer(void *device, const char *field, unsigned *value) {
    unsigned long long found;
    if (!device_number(device, field, &found)) return NOT_SUPPORTED;
    *value = (unsigned)found;
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; FAIL_AS_PLANNED(); return SUCCESS; }
int nvmlShutdown(void) { FAIL_AS_PLANNED(); return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the fake driver"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    unsigned long long value = 0;
    FAIL_AS_PLANNED();
    number("count", &value);
    *count = (unsigned)value;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    unsigned long long count = 0;
    FAIL_AS_PLANNED_FOR((void *)(uintptr_t)(index + 1));
    number("count", &count);
    *device = (void *)(uintptr_t)(index + 1);
    return index < count ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    FAIL_AS_PLANNED_FOR(device);
    return text_answer(device, "uuid", uuid, size);
}

int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    FAIL_AS_PLANNED_FOR(device);
    return text_answer(device, "name", name, size);
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    FAIL_AS_PLANNED_FOR(device);
    memory->used = 0;
    if (!device_number(device, "memory_mib", &memory->total)) return NOT_SUPPORTED;
    device_number(device, "memory_used_mib", &memory->used);
    memory->total <<= 20;
    memory->used <<= 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, MemoryV2 *memory) {
    Memory plain;
    FAIL_AS_PLANNED_FOR(device);
    int code = nvmlDeviceGetMemoryInfo(device, &plain);
    if (code) return code;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *utilization) {
    FAIL_AS_PLANNED_FOR(device);
    utilization->memory = 0;
    return number_answer(device, "utilisation", &utilization->gpu);
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *temperature) {
    (void)sensor;
    FAIL_AS_PLANNED_FOR(device);
    return number_answer(device, "temperature", temperature);
}

int nvmlDeviceGetTotalEccErrors(void *device, unsigned type, unsigned counter, unsigned long long *count) {
    (void)type; (void)counter;
    FAIL_AS_PLANNED_FOR(device);
    return device_number(device, "ecc", count) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    FAIL_AS_PLANNED_FOR(device);
    *corrected = *uncorrected = *pending = *failed = 0;
    int no_pending = number_answer(device, "remap_pending", pending);
    int no_failed = number_answer(device, "remap_failed", failed);
    return no_pending && no_failed ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending) {
    FAIL_AS_PLANNED_FOR(device);
    return number_answer(device, "pages_pending", pending);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    FAIL_AS_PLANNED_FOR(device);
    return device_number(device, "throttle", reasons) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    FAIL_AS_PLANNED_FOR(device);
    return number_answer(device, "milliwatts", milliwatts);
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    FAIL_AS_PLANNED_FOR(device);
    return device_number(device, "millijoules", millijoules) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPciInfo_v3(void *device, PciInfo *info) {
    FAIL_AS_PLANNED_FOR(device);
    memset(info, 0, sizeof *info);
    return number_answer(device, "pci", &info->bus);
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    FAIL_AS_PLANNED_FOR(device);
    *pending = 0;
    return number_answer(device, "mig", current);
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    FAIL_AS_PLANNED_FOR(device);
    return number_answer(device, "minor", minor);
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    FAIL_AS_PLANNED_FOR(device);
    *count = MAX_SLICES;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **slice) {
    char uuid[128];
    FAIL_AS_PLANNED_FOR(device);
    *slice = (void *)((uintptr_t)device | (uintptr_t)(index + 1) << SLICE_SHIFT);
    return device_text(*slice, "uuid", uuid, sizeof uuid) ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(void *slice, unsigned *id) {
    FAIL_AS_PLANNED_FOR(slice);
    return number_answer(slice, "gpu_instance", id);
}

int nvmlDeviceGetComputeInstanceId(void *slice, unsigned *id) {
    FAIL_AS_PLANNED_FOR(slice);
    return number_answer(slice, "compute_instance", id);
}

static int processes(void *device, unsigned *room, Process *found) {
    char text[4096] = "";
    char *rest = text;
    unsigned count = 0, available = found ? *room : 0;
    device_text(device, "processes", text, sizeof text);
    for (char *word; (word = strtok_r(rest, " ", &rest)); count++) {
        if (count >= available) continue;
        memset(&found[count], 0, sizeof found[count]);
        sscanf(word, "%u:%llu", &found[count].pid, &found[count].used);
        found[count].used <<= 20;
    }
    *room = count;
    return count > available ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *room, Process *found) {
    FAIL_AS_PLANNED_FOR(device);
    return processes(device, room, found);
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *room, Process *found) {
    FAIL_AS_PLANNED_FOR(device);
    return processes(device, room, found);
}

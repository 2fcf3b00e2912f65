/* A stand-in for libcuda.so.1: memory of the process as memory of the GPU, 256 MiB of it.
 *
 * In the file named by FAKE_NVML_STATE: cuda_error=700: every call returns it; cuda_flip=1: reads have a wrong bit.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t TOTAL = (size_t)256 << 20;
static size_t used;

static int planned(const char *key) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096];
    size_t length = strlen(key);
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0 && line[length] == '=') found = atoi(line + length + 1);
    if (file) fclose(file);
    return found;
}

int cuInit(unsigned flags) { (void)flags; return planned("cuda_error"); }
int cuDeviceGet(int *device, int number) { *device = number; return planned("cuda_error"); }
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags; (void)device;
    *context = &used;
    return planned("cuda_error");
}
int cuCtxDestroy_v2(void *context) { (void)context; return 0; }
int cuMemGetInfo_v2(size_t *available, size_t *total) { *available = TOTAL - used; *total = TOTAL; return 0; }

int cuMemAlloc_v2(uint64_t *block, size_t size) {
    if (used + size > TOTAL) return 2;
    used += size;
    *block = (uint64_t)(uintptr_t)malloc(size);
    return 0;
}

int cuMemsetD32_v2(uint64_t block, unsigned value, size_t count) {
    for (size_t at = 0; at < count; at++) ((unsigned *)(uintptr_t)block)[at] = value;
    return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t block, size_t size) {
    memcpy(to, (void *)(uintptr_t)block, size);
    if (planned("cuda_flip")) ((char *)to)[size / 2] ^= 1;
    return 0;
}

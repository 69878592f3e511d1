/* A double of libnvidia-ml.so.1: the part of NVML that `gpu/bare/pynvml.py` calls, written from nvml.h. It answers every question with
 * numbers of its own, writes each call and what it was given into `calls`, and fails where the test says so. Compiled with -DOLD it is
 * a driver that lacks the newer functions. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { GPUS = 2, SAMPLES = 64 };
#define SECOND "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f" /* that of the double of the driver */

typedef struct { int number; } Device;
typedef struct { int number, taken; } Sample;
typedef struct { uint32_t id, answer; double value; const char *names[3]; } Metric;
typedef struct { uint32_t version, count; Sample *older, *newer; Metric metrics[477]; } Request;
typedef struct { uint32_t id, scope; int64_t time, latency; uint32_t type, answer; union { double number; uint32_t whole; uint64_t wide; } value; } Field;
typedef struct { uint32_t pid; uint64_t memory; uint32_t instance, compute; } Process;
typedef struct { uint32_t version, sensor; int32_t temperature; } Temperature;
typedef struct { uint32_t version, supported; } Support;

char calls[1 << 16];                        /* a line a call, until the test clears it */
char failing[64];                           /* the function that fails, */
int failure;                                /* and with what */
int processes;                              /* how many compute */
static Device devices[GPUS] = {{0}, {1}}, instance = {7};
static Sample samples[SAMPLES];
int allocated, time_passed;                  /* samples so far, and readings into them */

#define SAID(...) (snprintf(calls + strlen(calls), sizeof calls - strlen(calls), __VA_ARGS__))
#define ENTER(...) { SAID("%s", __func__); SAID(" " __VA_ARGS__); SAID("\n"); if (failure && !strcmp(failing, __func__)) return failure; }

const char *nvmlErrorString(int code) {
    return code == INVALID_ARGUMENT ? "Invalid Argument" : code == NOT_SUPPORTED ? "Not Supported" : code == NOT_FOUND ? "Not Found"
         : code == GPU_IS_LOST ? "GPU is lost" : code == UNKNOWN ? "Unknown Error" : code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "words of the library";
}
int nvmlInitWithFlags(unsigned flags) { ENTER("%u", flags) return SUCCESS; }
int nvmlShutdown(void) { ENTER("-") return SUCCESS; }

static int text(char *buffer, unsigned size, const char *words) { strncpy(buffer, words, size); return SUCCESS; }
int nvmlSystemGetDriverVersion(char *b, unsigned size) { ENTER("%u", size) return text(b, size, "580.159.04"); }
int nvmlSystemGetNVMLVersion(char *b, unsigned size) { ENTER("%u", size) return text(b, size, "13.580.159.04"); }
int nvmlSystemGetCudaDriverVersion(int *version) { ENTER("-") *version = 13000; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { ENTER("-") *count = GPUS; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    ENTER("%u", index)
    if (index >= GPUS) return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) { ENTER("%s", uuid) *device = &devices[1]; return strcmp(uuid, SECOND) ? NOT_FOUND : SUCCESS; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device **device) { ENTER("%s", id) *device = &devices[1]; return SUCCESS; }
int nvmlDeviceGetName(Device *d, char *b, unsigned size) { ENTER("%d %u", d->number, size) return text(b, size, "NVIDIA H200"); }
int nvmlDeviceGetUUID(Device *d, char *b, unsigned size) { ENTER("%d %u", d->number, size) return text(b, size, d->number ? SECOND : "GPU-a"); }

#define NUMBER(name, type, answer) int name(Device *d, type *told) { ENTER("%d", d->number) *told = (answer); return SUCCESS; }
NUMBER(nvmlDeviceGetNumGpuCores, unsigned, 16896)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, 7)
NUMBER(nvmlDeviceGetGpuInstanceId, unsigned, 3)
#ifndef OLD
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 1ull << 40 | 4)
#endif
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 1ull << 41 | 4)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, 3000000000u)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 600000)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, 1ull << 42)

int nvmlDeviceGetMigMode(Device *d, unsigned *now, unsigned *next) { ENTER("%d", d->number) *now = 1; *next = 0; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, unsigned index, Device **mig) { ENTER("%d %u", d->number, index) *mig = &instance; return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(Device *d, int *major, int *minor) { ENTER("%d", d->number) *major = 9; *minor = 0; return SUCCESS; }
int nvmlDeviceGetClockInfo(Device *d, int type, unsigned *clock) { ENTER("%d %d", d->number, type) *clock = 1980 + type; return SUCCESS; }
int nvmlDeviceGetMaxClockInfo(Device *d, int type, unsigned *clock) { ENTER("%d %d", d->number, type) *clock = 2980 + type; return SUCCESS; }
int nvmlDeviceGetTemperature(Device *d, int sensor, unsigned *told) { ENTER("%d %d", d->number, sensor) *told = 51; return SUCCESS; }
#ifndef OLD
int nvmlDeviceGetTemperatureV(Device *d, Temperature *told) { ENTER("%d %x %u", d->number, told->version, told->sensor) told->temperature = -5; return SUCCESS; }
#endif
int nvmlDeviceGetMemoryInfo(Device *d, uint64_t *told) { ENTER("%d", d->number) told[0] = 141ull << 30; told[1] = 140ull << 30; told[2] = 1ull << 30; return SUCCESS; }
int nvmlDeviceGetUtilizationRates(Device *d, unsigned *told) { ENTER("%d", d->number) told[0] = 98; told[1] = 40; return SUCCESS; }
int nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    ENTER("%d %d %u %u", d->number, count, fields[0].id, fields[count - 1].id)
    for (int n = 0; n < count; n++) {
        fields[n].answer = n ? NOT_SUPPORTED : SUCCESS;
        fields[n].type = 1;
        fields[n].value.whole = 1000 * fields[n].id;
        fields[n].time = 1700000000000000, fields[n].latency = 12;
    }
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, Process *told) {
    ENTER("%d %u %s", d->number, *count, told ? "filled" : "counted")
    unsigned room = *count;
    *count = processes;
    if (room < (unsigned)processes) return INSUFFICIENT_SIZE;
    for (int n = 0; n < processes; n++) told[n] = (Process){1000 + n, n ? UINT64_MAX : 1ull << 33, 0xffffffff, 2};
    return SUCCESS;
}

int nvmlGpmQueryDeviceSupport(Device *d, Support *told) { ENTER("%d %u", d->number, told->version) told->supported = 1; return SUCCESS; }
int nvmlGpmSampleAlloc(Sample **sample) { ENTER("-") *sample = &samples[allocated++ % SAMPLES]; return SUCCESS; }
int nvmlGpmSampleFree(Sample *sample) { ENTER("%d", sample->taken) return SUCCESS; }
int nvmlGpmSampleGet(Device *d, Sample *sample) { ENTER("%d", d->number) sample->number = d->number; sample->taken = ++time_passed; return SUCCESS; }
int nvmlGpmMigSampleGet(Device *d, unsigned gi, Sample *sample) { ENTER("%d %u", d->number, gi) sample->number = 100 + gi; sample->taken = ++time_passed; return SUCCESS; }
int nvmlGpmMetricsGet(Request *request) {
    ENTER("%u %u %u", request->version, request->count, request->metrics[0].id)
    for (unsigned n = 0; n < request->count; n++) {
        Metric *one = &request->metrics[n];
        one->answer = one->id == 13 ? NOT_SUPPORTED : SUCCESS;
        one->value = one->id + 0.125 * (request->newer->taken - request->older->taken) + request->newer->number;
        one->names[0] = "short";
    }
    return SUCCESS;
}

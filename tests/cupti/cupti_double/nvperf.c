/* A double of libnvperf_host.so and libnvperf_target.so: there to be loaded. */
int nvperf_double;

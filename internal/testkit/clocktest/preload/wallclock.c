// Moves the wall clock of a program that it is preloaded into (LD_PRELOAD) by the nanoseconds in the file that ONERUN_CLOCK names. The file is
// mapped, so that whoever writes to it moves the clock of the running program. The monotonic clock stays as it is.
//
// The time itself is asked of the kernel by system call, not of the next library: jemalloc, which redis-server is built with, reads the
// clock while libraries are still being loaded, and a look-up of the next function would then allocate, and wait for itself.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const int64_t *shift; // null until the file is mapped

__attribute__((constructor)) static void map_shift(void) {
	const char *path = getenv("ONERUN_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		perror("wallclock: ONERUN_CLOCK");
		_exit(1);
	}
	close(fd);
	shift = page;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
	if (syscall(SYS_clock_gettime, clock, at) != 0)
		return -1;
	if (shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI)) {
		int64_t ns = at->tv_sec * SECOND + at->tv_nsec + __atomic_load_n(shift, __ATOMIC_SEQ_CST);
		at->tv_sec = ns / SECOND;
		at->tv_nsec = ns % SECOND;
	}
	return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
	struct timespec now;
	(void)zone; // obsolete, and null everywhere
	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at) {
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}

// Prints, for each line that it reads, what its wall clock shows, and by its monotonic clock how long it has run, in nanoseconds.
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long long nanoseconds(clockid_t clock) {
	struct timespec at;
	if (clock_gettime(clock, &at) != 0)
		exit(1);
	return at.tv_sec * 1000000000LL + at.tv_nsec;
}

int main(void) {
	char line[8];
	long long start = nanoseconds(CLOCK_MONOTONIC);
	while (fgets(line, sizeof line, stdin)) {
		struct timeval at;
		gettimeofday(&at, NULL);
		long long wall = nanoseconds(CLOCK_REALTIME), seconds = at.tv_sec;
		// The three ways to ask agree, but for the second that may begin between them.
		if (llabs(wall / 1000000000 - seconds) > 1 || llabs(time(NULL) - seconds) > 1)
			return 1;
		printf("%lld %lld\n", wall, nanoseconds(CLOCK_MONOTONIC) - start);
		fflush(stdout);
	}
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * Holds two simulated chips and a page of memory on each until it is killed, for tests that look at
 * it from outside.
 */
#include <stdio.h>
#include <unistd.h>

#include "txda.h"

int main(void)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_context *context;
	struct txda_device *device;
	struct txda_buffer *buffer;

	options.backend = "cmodel";
	options.cmodel = "chips=2,mem=64M,cores=1";
	options.name = "holds chips";
	if (txda_context_new(&options, &context) < 0) {
		fprintf(stderr, "%s\n", txda_context_error(NULL));
		return 1;
	}
	for (unsigned i = 0; i < 2; i++)
		if (txda_device_get(context, i, &device) < 0 ||
		    txda_buffer_new(device, 100, TXDA_MEMORY_DEVICE, 0, &buffer) < 0) {
			fprintf(stderr, "%s\n", txda_context_error(context));
			return 1;
		}
	printf("%d\n", (int)getpid());
	fflush(stdout);
	for (;;)
		pause();
}

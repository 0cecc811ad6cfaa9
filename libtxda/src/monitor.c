// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "context.h"
#include "events.h"
#include "monitor.h"
#include "thread.h"

#define PERIOD_NS     200000000ull
#define SAMPLES	      6	 /* a rate covers at most SAMPLES - 1 periods */
#define QUIET_PERIODS 15 /* after this the monitor sleeps */
#define HOT_MC	      95000
#define COOL_MC	      90000

struct sample {
	uint64_t time_ns, busy_ns;
};

struct watch {
	struct txda_context *context;
	struct txda__page page;
	struct sample sample[TXDA__MAX_CHIPS][SAMPLES];
	unsigned n_samples;
	struct txda_device_status last[TXDA__MAX_CHIPS];
	bool seen, hot[TXDA__MAX_CHIPS];
};

static void report_health(struct watch *watch, unsigned i, const struct txda_device_status *now)
{
	const struct txda_device_status *last = &watch->last[i];
	struct txda_context *context = watch->context;

	if (now->ecc_corrected != last->ecc_corrected ||
	    now->ecc_uncorrected != last->ecc_uncorrected)
		txda__event(context, TXDA_EVENT_ECC, i,
			    "chip %u: %u corrected and %u uncorrected memory errors so far", i,
			    now->ecc_corrected, now->ecc_uncorrected);
	if (now->lost && !last->lost)
		txda__event(context, TXDA_EVENT_DEVICE_REMOVED, i, "chip %u is lost", i);
	if (!watch->hot[i] && now->temp_mc >= HOT_MC) {
		watch->hot[i] = true;
		txda__event(context, TXDA_EVENT_THERMAL, i, "chip %u: %d degrees Celsius", i,
			    now->temp_mc / 1000);
	} else if (watch->hot[i] && now->temp_mc < COOL_MC) {
		watch->hot[i] = false;
	}
}

static uint32_t rate(const struct watch *watch, unsigned i, uint64_t now, uint64_t busy)
{
	const struct sample *old = &watch->sample[i][watch->n_samples ? watch->n_samples - 1 : 0];

	if (!watch->n_samples || now <= old->time_ns || busy < old->busy_ns)
		return 0;
	return txda__permille(busy - old->busy_ns, now - old->time_ns);
}

static void fill_chip(struct txda__page_chip *chip, const struct txda_device_status *status,
		      uint32_t utilisation)
{
	chip->mem_used_bytes = status->mem_used_bytes;
	chip->busy_ns = status->busy_ns;
	chip->copy_busy_ns = status->copy_busy_ns;
	chip->bytes_read = status->bytes_read;
	chip->bytes_written = status->bytes_written;
	chip->power_mw = status->power_mw;
	chip->temp_mc = status->temp_mc;
	chip->clock_khz = status->clock_khz;
	chip->ecc_corrected = status->ecc_corrected;
	chip->ecc_uncorrected = status->ecc_uncorrected;
	chip->faults = status->faults;
	chip->lost = status->lost;
	chip->utilisation_permille = utilisation;
}

/* Samples all chips; true if anything has changed since the last time. */
static bool sample_chips(struct watch *watch)
{
	struct txda_context *context = watch->context;
	uint64_t now = clock_ns();
	bool changed = !watch->seen;

	for (unsigned i = 0; i < context->n_devices; i++) {
		struct sample *sample = watch->sample[i];
		struct txda_device_status status;
		uint32_t utilisation;

		if (context->backend->ops->status(context->backend, context->device[i].physical,
						  &status) < 0)
			continue;
		if (watch->seen)
			report_health(watch, i, &status);
		utilisation = rate(watch, i, now, status.busy_ns);
		atomic_store_explicit(&context->monitor.utilisation[i], utilisation,
				      memory_order_relaxed);
		fill_chip(&watch->page.chip[i], &status, utilisation);
		changed |= utilisation || status.busy_ns != watch->last[i].busy_ns ||
			   status.copy_busy_ns != watch->last[i].copy_busy_ns ||
			   status.mem_used_bytes != watch->last[i].mem_used_bytes;
		watch->last[i] = status;
		memmove(&sample[1], &sample[0], (SAMPLES - 1) * sizeof(*sample));
		sample[0] = (struct sample){now, status.busy_ns};
	}
	if (watch->n_samples < SAMPLES)
		watch->n_samples++;
	watch->seen = true;
	return changed;
}

static void describe(struct watch *watch)
{
	struct txda_context *context = watch->context;

	watch->page.n_chips = (uint16_t)context->n_devices;
	snprintf(watch->page.command, sizeof(watch->page.command), "%s",
		 program_invocation_short_name);
	snprintf(watch->page.purpose, sizeof(watch->page.purpose), "%s", context->name);
	for (unsigned i = 0; i < context->n_devices; i++) {
		struct txda__page_chip *chip = &watch->page.chip[i];
		struct txda_device_info info = {0};

		if (context->backend->ops->info(context->backend, context->device[i].physical,
						&info) < 0)
			continue;
		memcpy(chip->name, info.name, sizeof(chip->name));
		memcpy(chip->serial, info.serial, sizeof(chip->serial));
		memcpy(chip->bus, info.bus, sizeof(chip->bus));
		chip->caps = info.caps;
		chip->mem_bytes = info.mem_bytes;
		chip->cores = info.cores;
		chip->physical = context->device[i].physical;
	}
}

/* Sleeps for a period, or until woken if @quiet. False when the monitor is to stop. */
static bool rest(struct txda__monitor *monitor, bool quiet, unsigned pokes)
{
	uint64_t until = clock_ns() + PERIOD_NS;
	struct timespec ts = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
	bool go_on;
	int r = 0;

	pthread_mutex_lock(&monitor->lock);
	if (quiet)
		atomic_store(&monitor->asleep, true);
	/*
	 * The poking thread increments the count, then checks whether the monitor sleeps; the
	 * monitor does the reverse, so at least one of them sees the other.
	 */
	while (!monitor->stop && r != ETIMEDOUT &&
	       (!quiet || atomic_load(&monitor->pokes) == pokes)) {
		if (quiet)
			pthread_cond_wait(&monitor->wake, &monitor->lock);
		else
			r = pthread_cond_timedwait(&monitor->wake, &monitor->lock, &ts);
	}
	atomic_store(&monitor->asleep, false);
	go_on = !monitor->stop;
	pthread_mutex_unlock(&monitor->lock);
	return go_on;
}

static void *run(void *arg)
{
	struct watch *watch = arg;
	struct txda__monitor *monitor = &watch->context->monitor;
	unsigned quiet = 0, pokes;

	for (;;) {
		pokes = atomic_load(&monitor->pokes);
		quiet = sample_chips(watch) ? 0 : quiet + 1;
		txda__telemetry_publish(&monitor->telemetry, &watch->page);
		if (!rest(monitor, quiet > QUIET_PERIODS, pokes))
			break;
	}
	free(watch);
	return NULL;
}

void txda__monitor_init(struct txda__monitor *monitor)
{
	pthread_condattr_t attr;

	memset(monitor, 0, sizeof(*monitor));
	monitor->telemetry.fd = -1;
	pthread_mutex_init(&monitor->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&monitor->wake, &attr);
	pthread_condattr_destroy(&attr);
	for (unsigned i = 0; i < TXDA__MAX_CHIPS; i++)
		atomic_init(&monitor->utilisation[i], UINT32_MAX);
}

int txda__monitor_start(struct txda__monitor *monitor, struct txda_context *context)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (!watch)
		return txda__fail(NULL, -ENOMEM, "out of memory");
	watch->context = context;
	describe(watch);
	/*
	 * Without a directory to publish in, other processes do not see the chips; everything else
	 * works.
	 */
	txda__telemetry_open(&monitor->telemetry);
	sample_chips(watch);
	txda__telemetry_publish(&monitor->telemetry, &watch->page);
	r = txda__thread_start(&monitor->thread, "txda-monitor", run, watch);
	if (r < 0) {
		free(watch);
		return txda__fail(NULL, r, "cannot start a thread: %s", strerror(-r));
	}
	monitor->running = true;
	return 0;
}

void txda__monitor_wake(struct txda__monitor *monitor)
{
	pthread_mutex_lock(&monitor->lock);
	pthread_cond_signal(&monitor->wake);
	pthread_mutex_unlock(&monitor->lock);
}

void txda__monitor_stop(struct txda__monitor *monitor)
{
	if (monitor->running) {
		pthread_mutex_lock(&monitor->lock);
		monitor->stop = true;
		pthread_cond_signal(&monitor->wake);
		pthread_mutex_unlock(&monitor->lock);
		pthread_join(monitor->thread, NULL);
		monitor->running = false;
	}
	txda__telemetry_close(&monitor->telemetry);
	pthread_cond_destroy(&monitor->wake);
	pthread_mutex_destroy(&monitor->lock);
}

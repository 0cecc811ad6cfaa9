// SPDX-License-Identifier: MIT
/*
 * A chip and its sensors. Utilisation is measured: the pool's time is charged to the chip whose op
 * it runs. Power follows from utilisation, temperature from power through one thermal resistance
 * and one capacity, the clock from both.
 */
#include "chip.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define IDLE_POWER_MW	 14000.0
#define COMPUTE_POWER_MW 61000.0 /* at full compute utilisation, above idle */
#define COPY_POWER_MW	 9000.0
#define LOAD_TAU_S	 0.25 /* power is averaged over this */
#define AMBIENT_C	 31.0
#define THERMAL_C_PER_MW 0.00062 /* about 77 degrees at full power */
#define THERMAL_TAU_S	 18.0
#define TRIP_C		 106.0
#define IDLE_CLOCK_KHZ	 400000.0
#define FULL_CLOCK_KHZ	 1400000.0
#define TRIP_CLOCK_KHZ	 600000.0

int cm_chip_init(struct cm_chip *c, struct cm_machine *machine, unsigned index, uint64_t mem_bytes)
{
	char name[32];

	c->machine = machine;
	c->index = index;
	c->dram_bytes = mem_bytes;
	pthread_mutex_init(&c->sensor_lock, NULL);
	c->sensed_ns = clock_ns();
	c->temp_c = AMBIENT_C + IDLE_POWER_MW * THERMAL_C_PER_MW;
	snprintf(name, sizeof(name), "txda-dram%u", index);
	c->dram_fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (c->dram_fd < 0)
		return -errno;
	/*
	 * A process that gets the descriptor must not be able to truncate memory that the chip
	 * uses.
	 */
	if (ftruncate(c->dram_fd, (off_t)mem_bytes) ||
	    fcntl(c->dram_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	return 0;
}

void cm_chip_fini(struct cm_chip *c)
{
	if (c->dram_fd >= 0)
		close(c->dram_fd);
	pthread_mutex_destroy(&c->sensor_lock);
}

int cm_chip_dram_fd(const struct cm_chip *c)
{
	return c->dram_fd;
}

uint64_t cm_chip_dram_bytes(const struct cm_chip *c)
{
	return c->dram_bytes;
}

uint64_t cm_chip_time_ns(const struct cm_chip *c)
{
	(void)c;
	return clock_ns();
}

bool cm_chip_link_down(struct cm_chip *c)
{
	uint64_t until_ns = atomic_load(&c->link_down_until_ns);

	return until_ns && (until_ns == UINT64_MAX || clock_ns() < until_ns);
}

void cm_chip_count_c2c(struct cm_chip *from, struct cm_chip *to, uint64_t bytes)
{
	if (from == to)
		return;
	cm_count(&from->activity.c2c_sent, bytes);
	cm_count(&to->activity.c2c_received, bytes);
}

/* ---- sensors --------------------------------------------------------------------------------- */

static double share(uint64_t part_ns, double dt_ns)
{
	double u = (double)part_ns / dt_ns;

	return u > 1 ? 1 : u;
}

/* Advances the thermal model to now; @compute and @copy are busy times so far. Under sensor_lock. */
static void sense(struct cm_chip *c, uint64_t now, uint64_t compute, uint64_t copy)
{
	double dt = (double)(now - c->sensed_ns), seconds = dt / 1e9, load, target;

	/* Reads in quick succession return the same values. */
	if (now < c->sensed_ns || dt < 1e6)
		return;
	load = share(compute - c->sensed_busy_ns, dt) * COMPUTE_POWER_MW +
	       share(copy - c->sensed_copy_ns, dt) * COPY_POWER_MW;
	c->load += (load - c->load) * (1 - exp(-seconds / LOAD_TAU_S));
	target = AMBIENT_C + (IDLE_POWER_MW + load) * THERMAL_C_PER_MW;
	c->temp_c += (target - c->temp_c) * (1 - exp(-seconds / THERMAL_TAU_S));
	c->sensed_ns = now;
	c->sensed_busy_ns = compute;
	c->sensed_copy_ns = copy;
}

void cm_chip_sensors(struct cm_chip *c, struct cm_sensors *ret)
{
	struct cm_activity *a = &c->activity;
	uint64_t now = clock_ns();
	bool hot = now < atomic_load(&c->hot_until_ns);
	double power, clock;

	*ret = (struct cm_sensors){
		.busy_ns = atomic_load(&a->busy_ns),
		.copy_busy_ns = atomic_load(&a->copy_busy_ns),
		.bytes_read = atomic_load(&a->bytes_read),
		.bytes_written = atomic_load(&a->bytes_written),
		.c2c_sent = atomic_load(&a->c2c_sent),
		.c2c_received = atomic_load(&a->c2c_received),
		.ops = atomic_load(&a->ops),
		.ecc_corrected = atomic_load(&a->ecc_corrected),
		.ecc_uncorrected = atomic_load(&a->ecc_uncorrected),
		.faults = atomic_load(&a->faults),
		.lost = atomic_load(&c->lost),
		.hot = hot,
		.link_down = cm_chip_link_down(c),
		.change_ns = UINT64_MAX,
	};
	if (hot)
		ret->change_ns = atomic_load(&c->hot_until_ns);
	if (ret->link_down && atomic_load(&c->link_down_until_ns) < ret->change_ns)
		ret->change_ns = atomic_load(&c->link_down_until_ns);
	if (ret->lost)
		return;
	pthread_mutex_lock(&c->sensor_lock);
	sense(c, now, ret->busy_ns, ret->copy_busy_ns);
	power = IDLE_POWER_MW + c->load;
	clock = IDLE_CLOCK_KHZ +
		(FULL_CLOCK_KHZ - IDLE_CLOCK_KHZ) * fmin(c->load / COMPUTE_POWER_MW * 4, 1);
	ret->power_mw = (uint32_t)(hot ? power / 2 : power);
	ret->temp_mc = (int32_t)((hot ? TRIP_C : c->temp_c) * 1000);
	ret->clock_khz = (uint32_t)(hot ? fmin(clock, TRIP_CLOCK_KHZ) : clock);
	pthread_mutex_unlock(&c->sensor_lock);
}

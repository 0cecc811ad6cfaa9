// SPDX-License-Identifier: MIT
/*
 * Sensors. Utilisation is measured: the pool's time is booked to the chip whose op it runs. Power
 * follows from utilisation, temperature from power through one thermal resistance and capacity, the
 * clock from both.
 */
#include "internal.h"

#include <math.h>

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

void cm_account_flush(struct cm_machine *m)
{
	struct cm_chip *c = m->account_chip;
	uint64_t now;

	if (!c)
		return;
	now = cm_now_ns();
	cm_count(m->account_copy ? &c->activity.copy_busy_ns : &c->activity.busy_ns,
		 now - m->account_since_ns);
	m->account_since_ns = now;
}

void cm_account(struct cm_machine *m, struct cm_chip *chip, bool copy)
{
	if (m->account_chip == chip && (!chip || m->account_copy == copy))
		return;
	if (m->account_chip)
		cm_account_flush(m);
	else
		m->account_since_ns = cm_now_ns();
	m->account_chip = chip;
	m->account_copy = copy;
}

void cm_sensors_init(struct cm_chip *c)
{
	c->sensed_ns = cm_now_ns();
	c->temp_c = AMBIENT_C + IDLE_POWER_MW * THERMAL_C_PER_MW;
}

static double share(uint64_t part_ns, double dt_ns)
{
	double u = (double)part_ns / dt_ns;

	return u > 1 ? 1 : u;
}

/* Moves the thermal model on to now; @compute and @copy are busy times. */
static void sense(struct cm_chip *c, uint64_t now, uint64_t compute, uint64_t copy)
{
	double dt = (double)(now - c->sensed_ns), seconds = dt / 1e9, load, target;

	/* Readers that come in quick succession see the same values. */
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
	uint64_t now = cm_now_ns();
	bool hot = now < atomic_load(&c->hot_until_ns);
	double power, clock;

	*ret = (struct cm_sensors){
		.busy_ns = atomic_load(&a->busy_ns),
		.copy_busy_ns = atomic_load(&a->copy_busy_ns),
		.bytes_read = atomic_load(&a->bytes_read),
		.bytes_written = atomic_load(&a->bytes_written),
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

// SPDX-License-Identifier: MIT
/* Words of the environment, topology maps, checksums, the address allocator. */
#include "spec.h"
#include "topology.h"
#include "unit.h"
#include "vas.h"

TEST(test_times)
{
	unsigned us;

	assert_int_equal(txda__parse_us("100us", &us), 0);
	assert_int_equal(us, 100);
	assert_int_equal(txda__parse_us("2ms", &us), 0);
	assert_int_equal(us, 2000);
	assert_int_equal(txda__parse_us("3", &us), 0);
	assert_int_equal(us, 3);
	assert_int_equal(txda__parse_us("1h", &us), -EINVAL);
	assert_int_equal(txda__parse_us("61s", &us), -EINVAL);
}

TEST(test_cmodel)
{
	static const struct {
		const char *text, *reason;
	} bad[] = {
		{"chip=4", "unknown key \"chip\""},
		{"chips", "\"chips\" is not of the form"},
		{"chips=0", "chips=0"},
		{"chips=65", "1 to 64"},
		{"chips=4,,mem=8G", "\"\" is not of the form"},
		{"mem=3G1", "mem=3G1"},
		{"mem=1M", "mem=1M"},
		{"mem=2097153", "multiple of 2M"},
		{"mem=2T", "up to 1T"},
		{"cores=1025", "up to 1024"},
		{"pin=2", "pin=2"},
		{"pin=yes", "0 or 1"},
		{"numa=off", "interleave or local"},
		{"spin=fast", "spin=fast"},
		{"isa=", "isa="},
		{"isa=averyveryverylongname", "isa="},
		{"faults=", "faults="},
		{"faults=a,faults=a,faults=a,faults=a,faults=a,faults=a,faults=a,faults=a,faults=a",
		 "more than 8"},
	};
	struct txda__cmodel_spec spec;
	char err[200];

	assert_int_equal(txda__parse_cmodel(NULL, &spec, err, sizeof(err)), 0);
	assert_int_equal(spec.chips, 1);
	assert_int_equal(spec.mem_bytes, 0);
	assert_int_equal(
		txda__parse_cmodel(
			"chips=4,mem=8G,cores=2,isa=avx2,spin=1ms,faults=hang:chip=1,faults=ecc",
			&spec, err, sizeof(err)),
		0);
	assert_int_equal(spec.chips, 4);
	assert_int_equal(spec.mem_bytes, 8ull << 30);
	assert_int_equal(spec.cores, 2);
	assert_int_equal(spec.spin_us, 1000);
	assert_string_equal(spec.isa, "avx2");
	assert_int_equal(spec.n_faults, 2);
	assert_string_equal(spec.faults[0], "hang:chip=1");
	assert_string_equal(spec.faults[1], "ecc");
	spec.chips = 99;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(txda__parse_cmodel(bad[i].text, &spec, err, sizeof(err)), -EINVAL);
		assert_says(err, bad[i].reason);
	}
	assert_int_equal(spec.chips, 99);
}

TEST(test_visible)
{
	struct txda_device_info info[3] = {
		{.serial = "A1", .bus = "0000:01:00.0", .node = "/dev/accel/accel0"},
		{.serial = "A2", .bus = "0000:02:00.0", .node = "/dev/accel/accel1"},
		{.serial = "A3", .bus = "0000:03:00.0", .node = "/dev/accel/accel2"},
	};
	unsigned chips[TXDA__MAX_CHIPS], n;
	char err[200];

	assert_int_equal(txda__parse_visible(NULL, info, 3, chips, &n, err, sizeof(err)), 0);
	assert_int_equal(n, 3);
	assert_int_equal(chips[2], 2);
	assert_int_equal(txda__parse_visible("", info, 3, chips, &n, err, sizeof(err)), 0);
	assert_int_equal(n, 0);
	assert_int_equal(
		txda__parse_visible("2,a1,0000:02:00.0", info, 3, chips, &n, err, sizeof(err)), 0);
	assert_int_equal(n, 3);
	assert_int_equal(chips[0], 2);
	assert_int_equal(chips[1], 0);
	assert_int_equal(chips[2], 1);
	assert_int_equal(
		txda__parse_visible("/dev/accel/accel1", info, 3, chips, &n, err, sizeof(err)), 0);
	assert_int_equal(chips[0], 1);
	assert_int_equal(txda__parse_visible("3", info, 3, chips, &n, err, sizeof(err)), -EINVAL);
	assert_says(err, "\"3\" is not a chip; there are 3");
	assert_int_equal(txda__parse_visible("0,A1", info, 3, chips, &n, err, sizeof(err)),
			 -EINVAL);
	assert_says(err, "named twice");
	assert_int_equal(txda__parse_visible("0,", info, 3, chips, &n, err, sizeof(err)), -EINVAL);
	assert_int_equal(txda__parse_visible("0", info, 0, chips, &n, err, sizeof(err)), -EINVAL);
}

TEST(test_chip_map)
{
	unsigned logical[TXDA__MAX_CHIPS], n;
	char err[200];

	assert_int_equal(txda__parse_chip_map(NULL, 2, logical, &n, err, sizeof(err)), 0);
	assert_int_equal(n, 2);
	assert_int_equal(txda__parse_chip_map("1,0", 2, logical, &n, err, sizeof(err)), 0);
	assert_int_equal(logical[0], 1);
	assert_int_equal(logical[1], 0);
	assert_int_equal(txda__parse_chip_map("3", 4, logical, &n, err, sizeof(err)), 0);
	assert_int_equal(n, 1);
	assert_int_equal(txda__parse_chip_map("0,2", 2, logical, &n, err, sizeof(err)), -EINVAL);
	assert_says(err, "chip 2 does not exist");
	assert_int_equal(txda__parse_chip_map("0,0", 2, logical, &n, err, sizeof(err)), -EINVAL);
	assert_says(err, "twice");
	assert_int_equal(txda__parse_chip_map("0;1", 2, logical, &n, err, sizeof(err)), -EINVAL);
	assert_int_equal(txda__parse_chip_map("0,", 2, logical, &n, err, sizeof(err)), -EINVAL);
	assert_int_equal(txda__parse_chip_map("99999999999", 2, logical, &n, err, sizeof(err)),
			 -EINVAL);
}

TEST(test_threads)
{
	static const char *const bad[] = {"0",	       "-1", "two", "4,",  ",4",
					  "4,x",       " 4", "4.5", "1e3", "99999999999999999999",
					  "4294967296"};
	unsigned cores = 7;
	char err[200];

	assert_int_equal(txda__parse_threads(NULL, &cores, err, sizeof(err)), 0);
	assert_int_equal(cores, 0);
	assert_int_equal(txda__parse_threads("", &cores, err, sizeof(err)), 0);
	assert_int_equal(cores, 0);
	assert_int_equal(txda__parse_threads("3", &cores, err, sizeof(err)), 0);
	assert_int_equal(cores, 3);
	assert_int_equal(txda__parse_threads("5,2", &cores, err, sizeof(err)), 0);
	assert_int_equal(cores, 5);
	assert_int_equal(txda__parse_threads("2000", &cores, err, sizeof(err)), 0);
	assert_int_equal(cores, 1024);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(txda__parse_threads(bad[i], &cores, err, sizeof(err)), -EINVAL);
		assert_says(err, bad[i]);
		assert_says(err, "must be a number of threads from 1");
	}
}

TEST(test_maps)
{
	static const struct {
		const char *map, *reason;
	} bad[] = {
		{"C4TP3", "do not divide"},
		{"C8TP2", "needs 8 chips; there are 4"},
		{"C4TP0", "groups of 0"},
		{"C4TP9", "1 to 8"},
		{"C4", "is not a map"},
		{"C4TP2x", "is not a map"},
		{"C0TP1", "do not divide"},
		{"CTP2", "is not a map"},
		{"", "is not a map"},
		{"0,1;", "is not a map"},
		{"0,,1", "is not a map"},
		{"0,1;1,2", "chip 1 is named twice"},
		{"0,4", "chip 4 does not exist"},
		{"a", "is not a map"},
		{"C99999TP1", "is not a map"},
		{"C4TP2B", "is not a map"},
		{"C4TP2B0", "is not a map"},
		{"C4TP2B1x", "is not a map"},
	};
	struct txda__topology t;
	char err[200];

	assert_int_equal(txda__parse_map("C4TP2", 4, &t, err, sizeof(err)), 0);
	assert_int_equal(t.n_groups, 2);
	assert_int_equal(t.size[1], 2);
	assert_int_equal(t.chip[1][0], 2);
	assert_int_equal(t.chip[1][1], 3);
	assert_int_equal(txda__parse_map("C2TP2", 4, &t, err, sizeof(err)), 0);
	assert_int_equal(t.n_groups, 1);
	assert_int_equal(txda__parse_map("C4TP2B1", 4, &t, err, sizeof(err)), 0);
	assert_int_equal(t.n_groups, 2);
	assert_int_equal(t.chip[1][1], 3);
	assert_int_equal(txda__parse_map("3;1,0", 4, &t, err, sizeof(err)), 0);
	assert_int_equal(t.n_groups, 2);
	assert_int_equal(t.size[0], 1);
	assert_int_equal(t.chip[0][0], 3);
	assert_int_equal(t.chip[1][0], 1);
	assert_int_equal(t.chip[1][1], 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(txda__parse_map(bad[i].map, 4, &t, err, sizeof(err)), -EINVAL);
		assert_says(err, bad[i].reason);
	}
	assert_int_equal(txda__parse_map("0,1,2,3,4,5,6,7,8", 16, &t, err, sizeof(err)), -EINVAL);
	assert_says(err, "more than 8");
	assert_int_equal(t.n_groups, 2);
}

/* Two cards with chips 0, 2 and 1, 3. */
static unsigned two_cards(void *arg, unsigned a, unsigned b)
{
	return a == b ? 0 : a % 2 == b % 2 ? 1 : 2;
}

TEST(test_auto)
{
	struct txda__topology t;

	txda__auto_map(4, 2, two_cards, NULL, &t);
	assert_int_equal(t.n_groups, 2);
	assert_int_equal(t.chip[0][0], 0);
	assert_int_equal(t.chip[0][1], 2);
	assert_int_equal(t.chip[1][0], 1);
	assert_int_equal(t.chip[1][1], 3);
	txda__auto_map(3, 2, two_cards, NULL, &t);
	assert_int_equal(t.n_groups, 1);
	txda__auto_map(1, 2, two_cards, NULL, &t);
	assert_int_equal(t.n_groups, 0);
}

TEST(test_vas)
{
	enum { N = 400, PAGES = 4096 };
	static unsigned char taken[PAGES];
	uint64_t start[N] = {0}, bytes[N] = {0}, base = 64 * TXDA__PAGE, at;
	struct txda__vas vas;
	uint64_t seed = 1;

	assert_int_equal(txda__vas_init(&vas, base, PAGES * TXDA__PAGE), 0);
	assert_int_equal(txda__vas_take(&vas, 0, 1, &at), -ENOSPC);
	assert_int_equal(txda__vas_take(&vas, PAGES * TXDA__PAGE + 1, 1, &at), -ENOSPC);
	assert_int_equal(txda__vas_take(&vas, UINT64_MAX, 1, &at), -ENOSPC);
	for (unsigned round = 0; round < 40000; round++) {
		unsigned i;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		i = (unsigned)(seed >> 33) % N;
		if (bytes[i]) {
			uint64_t first = (start[i] - base) / TXDA__PAGE,
				 n = (bytes[i] + TXDA__PAGE - 1) / TXDA__PAGE;

			memset(taken + first, 0, n);
			txda__vas_release(&vas, start[i], bytes[i]);
			bytes[i] = 0;
		} else {
			uint64_t want = (seed >> 40) % (40 * TXDA__PAGE) + 1,
				 align = TXDA__PAGE << (seed >> 60) % 4;

			if (txda__vas_take(&vas, want, align, &start[i]) < 0)
				continue;
			bytes[i] = want;
			assert_int_equal(start[i] % align, 0);
			assert_true(start[i] >= base &&
				    start[i] + want <= base + PAGES * TXDA__PAGE);
			for (uint64_t p = (start[i] - base) / TXDA__PAGE;
			     p * TXDA__PAGE + base < start[i] + want; p++) {
				assert_int_equal(taken[p], 0);
				taken[p] = 1;
			}
		}
		for (size_t h = 1; h < vas.n_free; h++) /* neighbours have joined */
			assert_true(vas.free[h - 1].start + vas.free[h - 1].bytes <
				    vas.free[h].start);
	}
	for (unsigned i = 0; i < N; i++)
		if (bytes[i])
			txda__vas_release(&vas, start[i], bytes[i]);
	assert_int_equal(vas.n_free, 1);
	assert_int_equal(vas.n_taken, 0);
	assert_int_equal(vas.free_bytes, PAGES * TXDA__PAGE);
	assert_int_equal(vas.free[0].bytes, PAGES * TXDA__PAGE);
	txda__vas_free(&vas);
}

TEST_MAIN

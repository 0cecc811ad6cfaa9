// SPDX-License-Identifier: MIT
/* What every program stands on, lib/base: checksums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "crc32c.h"

static void crc_is_the_same_either_way(void **state)
{
	static unsigned char data[100000];

	(void)state;
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c_portable(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c(0, NULL, 0), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 2654435761u >> 13);
	for (size_t n = 0; n < sizeof(data); n = n * 3 + 1)
		for (size_t at = 0; at < 9 && at <= n; at++)
			assert_int_equal(crc32c(0x1234, data + at, n - at),
					 crc32c_portable(0x1234, data + at, n - at));
	assert_int_equal(crc32c(crc32c(0, data, 70001), data + 70001, 29999),
			 crc32c(0, data, sizeof(data)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_is_the_same_either_way),
	};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
